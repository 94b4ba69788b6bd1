#!lua flags=allow-oom
-- ARGV  1 the ticket that must be on the node, 2 the marker that replaces it, 3 the least value of the fence
-- Returns the marker that is now on the node. If it is not the requested one, nothing was changed.
local marker = redis.call('GET', KEYS[1])
if marker == ARGV[1] then
  local fence = redis.call('GET', KEYS[2])
  if not is_fence(fence) or tonumber(fence) < tonumber(ARGV[3]) then redis.call('SET', KEYS[2], ARGV[3]) end
  marker = ARGV[2]
  redis.call('SET', KEYS[1], marker)
end
return answer('marker', marker)
