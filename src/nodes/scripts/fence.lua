#!lua flags=no-writes
-- ARGV  1 the marker of a node that votes
-- The counter, and whether this node is known to remember it.
return answer('fence', redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0, redis.call('GET', KEYS[2]) or '0')
