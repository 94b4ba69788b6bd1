#!lua flags=allow-oom
-- Seals and releases: many requests in one call, each as if it were alone, in order. Ending a term must not fail because the
-- memory is full.
--
-- KEYS   1 the marker, 2 the fence, 3.. the keys of the requests, one request after another
-- ARGV   1 the expected marker; then for each request its number of keys, if it is not 1, and
--        seal      `:<attempt>:`, `seal`
--        release   `:<attempt>:`, the letters of the stages that may be deleted
-- reply  seconds and microseconds of TIME, `ends`, and one answer for each request:
--        seal      the least PTTL; {value} of a key of another attempt, {nil} if it is free; `not_admitted`
--        release   how many keys were deleted
--        An error in one request is the answer to this request only.
--
-- seal     Changes every key of this attempt, in any stage, to `s`; the TTL stays. The vote counts as sealed only if all keys
--          were of this attempt. It needs the expected marker.
-- release  Deletes the keys of this attempt in these stages. It needs no marker, because only the owner matters.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local time = call('TIME')
-- Nil for a key without a string. The place of a key's value is one before its place in KEYS.
local values = call('MGET', KEYS[1], unpack(KEYS, 3))
local admitted = values[1] == ARGV[1]

-- What this call has written, by key; false if it deletes the key. They are deleted together, at its end.
local written, deleted = {}, {}

-- The value of a key, or false. GET is the error for a key that is not a string.
local function value_of(i)
  local value = written[KEYS[i]]
  if value == nil then return values[i - 1] or call('GET', KEYS[i]) end
  return value
end

local function is_of(value, attempt)
  return value and sub(value, 2, #attempt + 1) == attempt and find('pts', sub(value, 1, 1), 1, true)
end

local function seal(first, last, attempt)
  if not admitted then return 'not_admitted' end
  local left, missed
  for i = first, last do
    local value = value_of(i)
    if is_of(value, attempt) then
      value = 's' .. sub(value, 2)
      call('SET', KEYS[i], value, 'KEEPTTL')
      written[KEYS[i]] = value
      local lasts = call('PTTL', KEYS[i])
      if not left or lasts < left then left = lasts end
    elseif not missed then
      missed = {value}
    end
  end
  return missed or left
end

local function release(first, last, attempt, stages)
  local count = 0
  for i = first, last do
    local value = value_of(i)
    if is_of(value, attempt) and find(stages, sub(value, 1, 1), 1, true) then
      deleted[#deleted + 1] = KEYS[i]
      written[KEYS[i]] = false
      count = count + 1
    end
  end
  return count
end

local answers, count = {time[1], time[2], 'ends'}, 3
-- The places of the answers to releases.
local releases = {}
local place, first, words = 2, 3, #ARGV
local COLON = byte(':')

local function run()
  while place <= words do
    local from, keys = first, 1
    if byte(ARGV[place]) ~= COLON then
      keys = tonumber(ARGV[place])
      place = place + 1
    end
    local attempt, what = ARGV[place], ARGV[place + 1]
    place, first, count = place + 2, first + keys, count + 1
    if what == 'seal' then
      answers[count] = seal(from, first - 1, attempt)
    else
      releases[#releases + 1] = count
      answers[count] = release(from, first - 1, attempt, what)
    end
  end
end

while place <= words do
  local ran, failure = pcall(run)
  if not ran then
    -- It failed between two requests: the call is malformed.
    if answers[count] ~= nil then error(failure) end
    -- Depending on its version, the server raises an error as a text or as a table.
    answers[count] = type(failure) == 'string' and {err = failure} or failure
  end
end
if #deleted > 0 then
  local failure = redis.pcall('DEL', unpack(deleted))
  if type(failure) == 'table' and failure.err then
    for _, release in ipairs(releases) do answers[release] = failure end
  end
end
return answers
