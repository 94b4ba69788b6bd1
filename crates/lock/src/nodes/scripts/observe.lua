#!lua flags=allow-oom
-- ARGV  1 the run_id of this connection, 2 the nonce of a new ticket, 3 the marker seen when the clock stepped, or ''
-- Replaces the marker by a wait ticket if it does not name this server, or if it was there when the clock stepped.
local marker = redis.call('GET', KEYS[1])
local named = starts(marker, ARGV[1] .. ':') or starts(marker, 'wait:' .. ARGV[1] .. ':')
if not named or marker == ARGV[3] then
  marker = 'wait:' .. ARGV[1] .. ':' .. ARGV[2]
  redis.call('SET', KEYS[1], marker)
end
return answer('marker', marker)
