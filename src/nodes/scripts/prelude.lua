-- The common beginning of all scripts, after the `#!lua` line.
--
-- KEYS    1 the marker, 2 the fence, 3.. the keys of one lease, or of many (extend)
-- ARGV    of a vote: 1 the expected marker, 2 the deadline in milliseconds of this node's TIME, 3 the attempt,
--         4.. as documented in the script (extend: from 3); the other scripts document all of theirs
-- reply   seconds and microseconds of TIME, a word, the values that belong to the word
--
-- Numbers stay strings where they are joined with text: `..` writes only 14 digits of a number.
local time = redis.call('TIME')

local function answer(...)
  return {time[1], time[2], ...}
end

-- Votes only with exactly the expected marker. A node that lost data, or votes under another configuration, has another.
-- No script that votes changes the marker, so one that handles many requests reads it once.
local admitted
local function not_admitted()
  if admitted == nil then admitted = redis.call('GET', KEYS[1]) == ARGV[1] end
  return not admitted and answer('not_admitted')
end

-- A server that was stopped executes its backlog when it resumes. Requests whose sender has given up are not executed.
local is_late
local function late()
  if is_late == nil then is_late = time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[2]) end
  return is_late and answer('late')
end

local function starts(value, text)
  return value and string.sub(value, 1, #text) == text
end

local function stage_and_attempt(value)
  return string.match(value or '', '^([pts]):(%x+):')
end

local function least(left, key)
  local ttl = redis.call('PTTL', key)
  return left and math.min(left, ttl) or ttl
end

-- The fence is known to be at least this number: it never falls.
local fence = -1

local function raise_fence(to)
  if fence < tonumber(to) then fence = tonumber(redis.call('GET', KEYS[2]) or '0') end
  if fence < tonumber(to) then
    redis.call('SET', KEYS[2], to)
    fence = tonumber(to)
  end
end
