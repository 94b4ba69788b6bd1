#!lua flags=allow-oom
-- ARGV  1 the ticket that must still stand, 2 the marker that replaces it, 3 the least value of the fence
-- Answers the marker that stands now: another one than asked for means that nothing was done.
local marker = redis.call('GET', KEYS[1])
if marker == ARGV[1] then
  raise_fence(ARGV[3])
  marker = ARGV[2]
  redis.call('SET', KEYS[1], marker)
end
return answer('marker', marker)
