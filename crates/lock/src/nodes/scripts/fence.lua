#!lua flags=no-writes
-- ARGV  1 the marker of a node that votes, 2 the run_id of this connection
-- Returns which configuration this node votes for (1 the expected one, 2 another one, 0 none), and its counter. A node without a
-- counter, or whose counter is no number, remembers nothing, so it votes for none.
local marker, fence = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if not is_fence(fence) then return answer('fence', 0, '0') end
local allegiance = 0
if marker == ARGV[1] then
  allegiance = 1
elseif starts(marker, ARGV[2] .. ':') then
  allegiance = 2
end
return answer('fence', allegiance, fence)
