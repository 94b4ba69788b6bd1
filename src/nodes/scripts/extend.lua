#!lua flags=allow-oom
-- KEYS  3.. the keys of many leases, one lease after another
-- ARGV  3.. three for each lease: its number of keys, `t:<attempt>:<token>:`, the TTL in milliseconds
-- Each lease is handled separately. If every key is `t` of exactly this attempt and token, the TTL is extended, and never
-- shortened. No key is created, and a sealed key only expires. Extending needs no memory, so a full server still does it.
-- Returns only the exceptions: the index of the lease, from 1, and the first value that is not the term's. The value is 0
-- if it is not a string: this is not a vote on the lease, and does not affect the other leases.
local no = not_admitted() or late()
if no then return no end

local exceptions = answer('extended')
local first = 3
for place = 1, (#ARGV - 2) / 3 do
  local last, term, ttl = first + tonumber(ARGV[3 * place]) - 1, ARGV[3 * place + 1], ARGV[3 * place + 2]
  local stands, value = true, nil
  for i = first, last do
    value = redis.pcall('GET', KEYS[i])
    if type(value) == 'table' then
      if not starts(value.err, 'WRONGTYPE') then return value end
      value = 0
    end
    stands = value ~= 0 and starts(value, term)
    if not stands then break end
  end
  for i = first, stands and last or 0 do
    redis.call('PEXPIRE', KEYS[i], ttl, 'GT')
  end
  if not stands then
    exceptions[#exceptions + 1] = place
    exceptions[#exceptions + 1] = value
  end
  first = last + 1
end
return exceptions
