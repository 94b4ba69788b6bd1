-- The common beginning of the scripts that do not vote, after the `#!lua` line.
--
-- KEYS    1 the marker, 2 the fence, 3.. as documented in the script
-- reply   seconds and microseconds of TIME, a word, the values that belong to the word
--
-- Numbers stay strings where they are joined with text: `..` writes only 14 digits of a number.
local time = redis.call('TIME')

local function answer(...)
  return {time[1], time[2], ...}
end

local function starts(value, text)
  return value and string.sub(value, 1, #text) == text
end

-- Whether a value is a number that a fence can be: below 2^53, where numbers are exact. `nan` is a number for Lua.
local function is_fence(value)
  return value and string.find(value, '^%d+$') and tonumber(value) < 2 ^ 53
end
