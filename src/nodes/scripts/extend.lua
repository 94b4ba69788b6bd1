#!lua flags=allow-oom
-- KEYS  3.. the keys of many leases, those of one lease behind those of the lease before it
-- ARGV  3.. three for each lease: how many keys it has, `t:<attempt>:<token>:`, the TTL in milliseconds
-- Each lease by itself, as if it were the only one: every key `t` of exactly this attempt and token: prolonged, never
-- shortened. Nothing is created, and what is sealed only ends. Prolonging needs no memory, so a full server still does
-- it.
-- Answers the exceptions only: the place of the lease, counted from 1, and the first value that is not the term's; 0 if
-- that is not a string, which is no answer about the lease and must not spoil those of the others.
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
