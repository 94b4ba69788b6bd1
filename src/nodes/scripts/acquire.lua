#!lua
-- ARGV  4 the TTL in milliseconds, 5 the metadata
-- Every key free: the next grant number, `p` on every key. Every key `p` of this attempt with one grant number: a
-- repeat, which answers that number and writes nothing, or a late copy would prolong what was released.
local no = not_admitted() or late()
if no then return no end

local mine = '^p:' .. ARGV[3] .. ':(%d+):'
local free, repeated, grant, left, by = 0, 0, nil, -1, nil
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if value then
    local ttl = redis.call('PTTL', KEYS[i])
    if ttl >= left then left, by = ttl, value end
    local number = string.match(value, mine)
    grant = grant or number
    if number and number == grant then repeated = repeated + 1 end
  else
    free = free + 1
  end
end

local all = #KEYS - 2
if repeated == all then return answer('granted', grant) end
if free < all then return answer('refused', left, by) end
redis.call('INCR', KEYS[2])
grant = redis.call('GET', KEYS[2])
for i = 3, #KEYS do
  redis.call('SET', KEYS[i], 'p:' .. ARGV[3] .. ':' .. grant .. ':' .. ARGV[5], 'PX', ARGV[4])
end
return answer('granted', grant)
