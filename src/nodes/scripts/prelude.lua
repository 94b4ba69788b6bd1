-- What every script begins with, behind its `#!lua` line.
--
-- KEYS    1 the marker, 2 the fence, 3.. the keys of one lease, or of many (extend)
-- ARGV    of a vote: 1 the marker that must stand, 2 the deadline in milliseconds of this node's TIME, 3 the attempt,
--         4.. its own (extend: 3.. its own); of the others: see there
-- answer  seconds and microseconds of TIME, a word, what belongs to the word
--
-- Numbers stay strings wherever they meet text: `..` writes 14 digits of a number and loses the rest.
local time = redis.call('TIME')

local function answer(...)
  return {time[1], time[2], ...}
end

-- Only under exactly this marker: a node that forgot, or votes under another configuration, says nothing else.
local function not_admitted()
  return redis.call('GET', KEYS[1]) ~= ARGV[1] and answer('not_admitted')
end

-- A server that was stopped runs its backlog when it is continued: what nobody waits for any more is not done.
local function late()
  return time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[2]) and answer('late')
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

local function raise_fence(to)
  if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(to) then
    redis.call('SET', KEYS[2], to)
  end
end
