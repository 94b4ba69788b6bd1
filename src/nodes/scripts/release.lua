#!lua flags=allow-oom
-- ARGV  1, 2 unused, 4 the letters of the stages that may be deleted
-- Deletes the keys of this attempt in these stages. It needs no marker and no deadline, because only the owner matters.
local count = 0
for i = 3, #KEYS do
  local stage, attempt = stage_and_attempt(redis.call('GET', KEYS[i]))
  if attempt == ARGV[3] and string.find(ARGV[4], stage, 1, true) then
    count = count + redis.call('DEL', KEYS[i])
  end
end
return answer('released', count)
