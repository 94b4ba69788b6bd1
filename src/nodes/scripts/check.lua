#!lua
-- KEYS  3 a key that nothing else uses
-- Runs every command that the other scripts need, on a key that ends by itself. A server that refuses one of them is
-- found before a lease depends on it, and not when the lease is to be renewed.
local key = KEYS[3]
redis.call('SET', key, '0', 'PX', '1000')
redis.call('INCR', key)
redis.call('SET', key, redis.call('GET', key), 'KEEPTTL')
redis.call('PEXPIRE', key, '2000', 'GT')
redis.call('PTTL', key)
redis.call('DEL', key)
return answer('checked')
