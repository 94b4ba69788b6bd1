#!lua
-- Acquires and confirms: many requests in one call, each as if it were alone, in order.
--
-- KEYS   1 the marker, 2 the fence, 3.. the keys of the requests, one request after another
-- ARGV   1 the expected marker, 2 the deadline in milliseconds of this node's TIME, 3 the number of acquires; then for each
--        request its number of keys, if it is not 1, and
--        acquire   `p:<attempt>:`, the TTL in milliseconds, the metadata
--        confirm   `p:<attempt>:<grant>:`, `t:<attempt>:<token>:`, the token
-- reply  seconds and microseconds of TIME, then `not_admitted`, or `votes` and one answer for each request:
--        acquire   the grant number; {largest PTTL, its value} if it is refused; `late`
--        confirm   the least PTTL; {value} of a key that is not of this grant, {nil} if it is free
--        An error in one request is the answer to this request only.
--
-- acquire  If every key is free: writes the next grant number as `p` to every key. If every key is already `p` of this attempt
--          with one grant number, the call is a repeat: returns that number and writes nothing, because a late copy would
--          otherwise extend a released key. A server that was stopped executes its backlog when it resumes, so nothing is
--          acquired after the deadline.
-- confirm  If every key is `p` of this grant, or `t` already: writes `t` with the token and keeps the TTL. The fence is never
--          lower than a token.
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
local time = call('TIME')

-- Nil for a key without a string. The place of a key's value is one before its place in KEYS.
local values = call('MGET', KEYS[1], unpack(KEYS, 3))
-- Votes only with exactly the expected marker. A node that lost data, or votes under another configuration, has another.
if values[1] ~= ARGV[1] then return {time[1], time[2], 'not_admitted'} end
local late = time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[2])

-- What this call has written, by key.
local written = {}

-- The value of a key, or false. GET is the error for a key that is not a string.
local function value_of(i)
  return written[KEYS[i]] or values[i - 1] or call('GET', KEYS[i])
end

-- The fence, and the number that the node stores. It stores the fence of all acquires of the call before the first of them
-- is granted, and is never behind. The end of the call corrects it.
local fence, stored

local function read_fence()
  if fence then return end
  local text = call('GET', KEYS[2]) or '0'
  -- `nan` is a number for Lua, and not for INCRBY.
  if not string.find(text, '^%d+$') then error('the fence is not a number') end
  fence = tonumber(text)
  stored = fence
end

-- The acquires that follow the current one.
local acquires = tonumber(ARGV[3])

local function store_fence(number)
  -- Exact below 2^53.
  call('SET', KEYS[2], format('%d', number))
  stored = number
end

local function take_grant()
  if not fence or fence == stored then
    local number = call('INCRBY', KEYS[2], 1 + acquires)
    fence, stored = number - 1 - acquires, number
  end
  fence = fence + 1
  return fence
end

local function grant_of(value, prefix)
  return sub(value, 1, #prefix) == prefix and string.match(value, '^(%d+):', #prefix + 1)
end

local function acquire(first, last, prefix, ttl, metadata)
  acquires = acquires - 1
  if late then return 'late' end
  local key = KEYS[first]
  if first == last and not values[first - 1] and not written[key] then
    local grant = take_grant()
    local value = prefix .. format('%d', grant) .. ':' .. metadata
    -- It fails if the key is not a string.
    if call('SET', key, value, 'NX', 'PX', ttl) then
      written[key] = value
      return grant
    end
    fence = grant - 1
  end

  local free, repeated, grant, left, by = 0, 0, nil, -1, nil
  for i = first, last do
    local value = value_of(i)
    if value then
      local lasts = call('PTTL', KEYS[i])
      if lasts >= left then left, by = lasts, value end
      local number = grant_of(value, prefix)
      grant = grant or number
      if number and number == grant then repeated = repeated + 1 end
    else
      free = free + 1
    end
  end
  local all = last - first + 1
  if repeated == all then return tonumber(grant) end
  if free < all then return {left, by} end
  grant = take_grant()
  for i = first, last do
    local value = prefix .. format('%d', grant) .. ':' .. metadata
    call('SET', KEYS[i], value, 'PX', ttl)
    written[KEYS[i]] = value
  end
  return grant
end

local function confirm(first, last, pending, term, token)
  local left
  for i = first, last do
    local value = value_of(i)
    if not value or sub(value, 1, #pending) ~= pending and sub(value, 1, #term) ~= term then return {value} end
    local lasts = call('PTTL', KEYS[i])
    if not left or lasts < left then left = lasts end
  end

  token = tonumber(token)
  read_fence()
  if stored < token then store_fence(token) end
  if fence < token then fence = token end
  for i = first, last do
    local value = written[KEYS[i]] or values[i - 1]
    if sub(value, 1, #pending) == pending then
      value = term .. sub(value, #pending + 1)
      call('SET', KEYS[i], value, 'KEEPTTL')
      written[KEYS[i]] = value
    end
  end
  return left
end

local answers, count = {time[1], time[2], 'votes'}, 3
local place, first, words = 4, 3, #ARGV
local PENDING, TERM = byte('p'), byte('t')

local function run()
  while place <= words do
    local from, keys = first, 1
    if byte(ARGV[place]) ~= PENDING then
      keys = tonumber(ARGV[place])
      place = place + 1
    end
    local a, b, c = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    place, first, count = place + 3, first + keys, count + 1
    if byte(b) == TERM then
      answers[count] = confirm(from, first - 1, a, b, c)
    else
      answers[count] = acquire(from, first - 1, a, b, c)
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
if stored ~= fence then store_fence(fence) end
return answers
