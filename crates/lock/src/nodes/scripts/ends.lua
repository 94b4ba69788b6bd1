#!lua flags=allow-oom
-- Seals, releases and keeps: many requests in one call, each as if it were alone, in order. Ending a term must not fail because the
-- memory is full.
--
-- KEYS   1 the marker, 2 the fence, 3.. the keys of the requests, one request after another
-- ARGV   1 the expected marker; then for each request `:<attempt>:`
--        Before a request for which they differ: the number of keys, and what is asked for, which is `seal`, or for a release
--        the letters of the stages that may be deleted, or for a keep the TTL in milliseconds.
-- reply  seconds and microseconds of TIME, `ends`, and one answer for each request:
--        seal      the least PTTL; {value} of the first key of another attempt, {nil} if the others are free; `not_admitted`
--        release   how many keys were deleted
--        keep      how many keys are of this attempt
--        An error in one request is the answer to this request only.
--
-- seal     Changes every key of this attempt, in any stage, to `s`; the TTL stays. The vote counts as sealed only if all keys
--          were of this attempt. It needs the expected marker.
-- release  Deletes the keys of this attempt in these stages. It needs no marker, because only the owner matters.
-- keep     Changes the keys of this attempt to `s` with this TTL. The TTL of those that are `s` already is only shortened. It needs no
--          marker.
-- No value of a lease is longer. Another program may have written it.
local LONGEST = 1536
local KEYS, ARGV = KEYS, ARGV
local call, sub, find = redis.call, string.sub, string.find
local time = call('TIME')
-- Nil for a key without a string.
local values = call('MGET', unpack(KEYS))
local admitted = values[1] == ARGV[1]

-- What this call has written, by key; false if it has deleted the key. The value of a key is the written one, or the read one, or
-- what GET returns: GET is the error for a key that is not a string.
local written = {}

local function seal(first, last, attempt)
  if not admitted then return 'not_admitted' end
  local left, missed
  for i = first, last do
    local key = KEYS[i]
    local value = written[key]
    if value == nil then value = values[i] or call('GET', key) end
    if value and find(value, attempt, 2, true) == 2 and find('pts', sub(value, 1, 1), 1, true) then
      value = 's' .. sub(value, 2)
      call('SET', key, value, 'KEEPTTL')
      written[key] = value
      local lasts = call('PTTL', key)
      if not left or lasts < left then left = lasts end
    elseif not missed or not missed[1] then
      missed = {value and sub(value, 1, LONGEST)}
    end
  end
  return missed or left
end

local answers, count = {time[1], time[2], 'ends'}, 3
local place, first, keys, what, life = 2, 3, nil, nil, nil

local function run()
  -- The length of `:<attempt>:`.
  local words, ATTEMPT = #ARGV, 34
  while place <= words do
    local attempt = ARGV[place]
    if #attempt < ATTEMPT then
      keys, what = tonumber(attempt), ARGV[place + 1]
      life = tonumber(what) and what
      if life then what = 'pts' end
      place = place + 2
      attempt = ARGV[place]
    end
    local from = first
    place, first, count = place + 1, first + keys, count + 1
    if what == 'seal' then
      answers[count] = seal(from, first - 1, attempt)
    else
      local found = 0
      for i = from, first - 1 do
        local key = KEYS[i]
        local value = written[key]
        if value == nil then value = values[i] or call('GET', key) end
        if value and find(value, attempt, 2, true) == 2 and find(what, sub(value, 1, 1), 1, true) then
          found = found + 1
          if not life then
            call('DEL', key)
            written[key] = false
          elseif sub(value, 1, 1) ~= 's' then
            value = 's' .. sub(value, 2)
            call('SET', key, value, 'PX', life)
            written[key] = value
          else
            call('PEXPIRE', key, life, 'LT')
          end
        end
      end
      answers[count] = found
    end
  end
end

while place <= #ARGV do
  local ran, failure = pcall(run)
  if not ran then
    -- It failed between two requests: the call is malformed.
    if answers[count] ~= nil then error(failure) end
    -- Depending on its version, the server raises an error as a text or as a table.
    answers[count] = type(failure) == 'string' and {err = failure} or failure
  end
end
return answers
