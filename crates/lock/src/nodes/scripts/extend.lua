#!lua flags=allow-oom
-- Extends many leases, each as if it were alone. Extending needs no memory, so a full server still does it.
--
-- KEYS   1 the marker, 2 the fence, 3.. the keys of the leases, one lease after another
-- ARGV   1 the expected marker, 2 the deadline in milliseconds of this node's TIME; then for each lease `t:<attempt>:<token>:`,
--        and before the first lease, and each that differs from the one before, its number of keys and its TTL in milliseconds
-- reply  seconds and microseconds of TIME, then `not_admitted`, `late`, or `extended` and the exceptions: the index of the
--        lease, from 1, and the first value that is not the term's. The value is 0 if it is not a string: this is not a vote
--        on the lease, and does not affect the other leases.
--
-- If every key is `t` of exactly this attempt and token, the TTL is extended, and never shortened. No key is created, and a
-- sealed key only expires.
-- No value of a lease is longer. Another program may have written it.
local LONGEST = 1536
local KEYS, ARGV = KEYS, ARGV
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local time = call('TIME')
-- Nil for a key without a string. The place of a key's value is one before its place in KEYS.
local values = call('MGET', KEYS[1], unpack(KEYS, 3))
-- Votes only with exactly the expected marker. A node that lost data, or votes under another configuration, has another.
if values[1] ~= ARGV[1] then return {time[1], time[2], 'not_admitted'} end
-- A server that was stopped executes its backlog when it resumes. Requests whose sender has given up are not executed.
if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[2]) then return {time[1], time[2], 'late'} end

local exceptions = {time[1], time[2], 'extended'}
local place, words, lease, first = 3, #ARGV, 0, 3
local keys, ttl
local TERM = byte('t')
while place <= words do
  if byte(ARGV[place]) ~= TERM then
    keys, ttl = tonumber(ARGV[place]), ARGV[place + 1]
    place = place + 2
  end
  local term = ARGV[place]
  place, lease = place + 1, lease + 1
  local last = first + keys - 1
  local exception
  for i = first, last do
    local value = values[i - 1]
    if not value or find(value, term, 1, true) ~= 1 then
      exception = i
      break
    end
  end
  if exception then
    local value = values[exception - 1]
    if not value then
      value = redis.pcall('GET', KEYS[exception])
      if type(value) == 'table' then
        if sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
        value = 0
      end
    end
    exceptions[#exceptions + 1] = lease
    exceptions[#exceptions + 1] = type(value) == 'string' and sub(value, 1, LONGEST) or value
  else
    for i = first, last do
      call('PEXPIRE', KEYS[i], ttl, 'GT')
    end
  end
  first = last + 1
end
return exceptions
