#!lua
-- ARGV  4 the TTL in milliseconds, 5 the metadata
-- If every key is free: writes the next grant number as `p` to every key. If every key is already `p` of this attempt
-- with one grant number, the call is a repeat: returns that number and writes nothing, because a late copy would
-- otherwise extend a released key.
local no = not_admitted() or late()
if no then return no end

local free, repeated, grant, left, by = 0, 0, nil, -1, nil
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if value then
    local ttl = redis.call('PTTL', KEYS[i])
    if ttl >= left then left, by = ttl, value end
    local number = string.match(value, '^p:' .. ARGV[3] .. ':(%d+):')
    grant = grant or number
    if number and number == grant then repeated = repeated + 1 end
  else
    free = free + 1
  end
end

local all = #KEYS - 2
if repeated == all then return answer('granted', grant) end
if free < all then return answer('refused', left, by) end
fence = redis.call('INCR', KEYS[2])
-- Exact below 2^53.
grant = string.format('%.0f', fence)
for i = 3, #KEYS do
  redis.call('SET', KEYS[i], 'p:' .. ARGV[3] .. ':' .. grant .. ':' .. ARGV[5], 'PX', ARGV[4])
end
return answer('granted', grant)
