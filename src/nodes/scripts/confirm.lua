#!lua
-- ARGV  4 this node's grant number, 5 the token
-- If every key is `p` of this grant, or `t` already: writes `t` with the token and keeps the TTL. The fence is never
-- lower than a token.
local no = not_admitted()
if no then return no end

local pending = 'p:' .. ARGV[3] .. ':' .. ARGV[4] .. ':'
local term = 't:' .. ARGV[3] .. ':' .. ARGV[5] .. ':'
local left, values = nil, {}
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  values[i] = value
  if not starts(value, pending) and not starts(value, term) then return answer('miss', value) end
  left = least(left, KEYS[i])
end

raise_fence(ARGV[5])
for i = 3, #KEYS do
  if starts(values[i], pending) then
    redis.call('SET', KEYS[i], term .. string.sub(values[i], #pending + 1), 'KEEPTTL')
  end
end
return answer('confirmed', left)
