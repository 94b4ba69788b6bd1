#!lua flags=allow-oom
-- Changes every key of this attempt, in any stage, to `s`; the TTL stays. The vote counts as sealed only if all keys were
-- of this attempt. Ending a term must not fail because the memory is full.
local no = not_admitted()
if no then return no end

local left, missed, by
for i = 3, #KEYS do
  local value = redis.call('GET', KEYS[i])
  local _, attempt = stage_and_attempt(value)
  if attempt == ARGV[3] then
    redis.call('SET', KEYS[i], 's' .. string.sub(value, 2), 'KEEPTTL')
    left = least(left, KEYS[i])
  elseif not missed then
    missed, by = true, value
  end
end
if missed then return answer('miss', by) end
return answer('sealed', left)
