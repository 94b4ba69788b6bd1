#!lua flags=allow-oom
-- ARGV  4 the token, 5 the TTL in milliseconds
-- Every key `t` of exactly this attempt and token: prolonged, never shortened. Nothing is created, and what is sealed
-- only ends. Prolonging needs no memory, so a full server still does it.
local no = not_admitted() or late()
if no then return no end

local term = 't:' .. ARGV[3] .. ':' .. ARGV[4] .. ':'
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  if not starts(value, term) then return answer('miss', value) end
end

for i = 3, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[5], 'GT')
end
return answer('extended')
