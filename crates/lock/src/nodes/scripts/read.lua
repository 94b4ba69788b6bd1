#!lua flags=no-writes
-- KEYS  3 the key of a lease
-- ARGV  1 the expected marker
-- Returns `not_admitted`, or `read`, and the value and PTTL of the key if it exists. No value of a lease is longer than 1536 bytes:
-- another program may have written it.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return answer('not_admitted') end
local value = redis.call('GET', KEYS[3])
if not value then return answer('read') end
return answer('read', string.sub(value, 1, 1536), redis.call('PTTL', KEYS[3]))
