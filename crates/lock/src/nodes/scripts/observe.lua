#!lua flags=allow-oom
-- ARGV  1 the run_id of this connection, 2 the nonce of a new ticket, 3 the marker seen when the clock stepped, or ''
-- Replaces the marker by a wait ticket if it does not name this server, if it was there when the clock stepped, or if a node that votes
-- has no fence, or one that is no number: then it lost data.
local marker = redis.call('GET', KEYS[1])
local fence = starts(marker, ARGV[1] .. ':') and redis.pcall('GET', KEYS[2])
-- An error, which is a table, is for the scripts that use the fence.
local votes = fence and (type(fence) == 'table' or is_fence(fence))
if not votes and not starts(marker, 'wait:' .. ARGV[1] .. ':') or marker == ARGV[3] then
  marker = 'wait:' .. ARGV[1] .. ':' .. ARGV[2]
  redis.call('SET', KEYS[1], marker)
end
return answer('marker', marker)
