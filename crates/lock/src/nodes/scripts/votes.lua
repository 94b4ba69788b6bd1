#!lua
-- Acquires and confirms: many requests in one call, each as if it were alone, in order.
--
-- KEYS   1 the marker, 2 the fence, 3.. the keys of the requests, one request after another
-- ARGV   1 the expected marker, 2 the deadline in milliseconds of this node's TIME, 3 the number of acquires, 4 what the fence is
--        at most after all requests if it is 0 before them; then for each request
--        acquire   `<attempt>:<token>:` with the token that it proposes, or 0
--        confirm   `<p or t>:<attempt>:<grant>:`, `t:<attempt>:<token>:`
--        Before a request for which they differ: the number of keys, the TTL in milliseconds, the metadata. At first a request
--        has one key. A confirm needs only the number of keys.
-- reply  seconds and microseconds of TIME, then `not_admitted`, or `votes` and one answer for each request. A value is cut off
--        after LONGEST bytes, which no value of a lease has: another program may have written it.
--        acquire   the proposed token, or the grant number, which is greater; {largest PTTL, its value} if it is refused; `late`
--        confirm   the least PTTL; {value} of a key that is not of this grant, {nil} if it is free
--        An error in one request is the answer to this request only.
--
-- acquire  If every key is free: writes the proposed token as `t` to every key if the fence is lower, and otherwise the next grant
--          number as `p`. The fence becomes this number, so no number is given twice. If every key already has such a value of
--          this attempt, the call is a repeat: returns its number and writes nothing, because a late copy would otherwise extend
--          a released key. A server that was stopped executes its backlog when it resumes, so nothing is acquired after the
--          deadline.
-- confirm  If every key has the value of this grant, or that of the token already: writes `t` with the token and keeps the TTL.
--          The fence is never lower than a token.
--
-- What costs time in a server: each function that a call defines, each string that Lua makes (it hashes all bytes), each
-- argument, each number that is formatted, and replies of the form `OK`, which become tables.
local LONGEST = 1536
local KEYS, ARGV = KEYS, ARGV
local call, sub, find, format = redis.call, string.sub, string.find, string.format
local time = call('TIME')

-- Nil for a key without a string.
local values = call('MGET', unpack(KEYS))
-- Votes only with exactly the expected marker. A node that lost data, or votes under another configuration, has another.
if values[1] ~= ARGV[1] then return {time[1], time[2], 'not_admitted'} end
-- A node without a fence lost data, and nobody may have observed that yet. So did one whose fence is no number: `nan` is one for Lua.
-- Numbers are exact below 2^53.
local stored = values[2] and find(values[2], '^%d+$') and tonumber(values[2])
if not stored or stored >= 2 ^ 53 then
  call('DEL', KEYS[1])
  return {time[1], time[2], 'not_admitted'}
end
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Whether a text begins with another one.
local function begins(text, prefix) return sub(text, 1, #prefix) == prefix end

-- What this call has written, by key. The value of a key is the written one, or the read one, or what GET returns: GET is the
-- error for a key that is not a string.
local written = {}

-- The fence, and the number that the node stores. Before it writes the first key, the call stores what the fence is at most
-- after it, so that the node is never behind. The end of the call corrects it if a request was refused.
local fence, is_ahead = stored, false

local function store_ahead()
  if is_ahead then return end
  local last = math.max(fence + ARGV[3], tonumber(ARGV[4]))
  if last ~= stored then call('SET', KEYS[2], format('%d', last)) end
  stored, is_ahead = last, true
end

-- The value for an acquire of `<attempt>:<token>:`, without what follows the number, and the number: what the fence becomes.
local function grant_to(request)
  store_ahead()
  local token = tonumber(sub(request, 34, -2))
  if token > fence then return 't:' .. request, token end
  return 'p:' .. sub(request, 1, 33) .. format('%d:', fence + 1), fence + 1
end

-- `expires` is when the keys expire, `tail` what follows the number in their values.
local function acquire(first, last, request, expires, tail)
  local pending, term = 'p:' .. sub(request, 1, 33), 't:' .. request
  local free, repeated, grant, left, by = 0, 0, nil, -1, nil
  for i = first, last do
    local value = written[KEYS[i]] or values[i] or call('GET', KEYS[i])
    if value then
      local lasts = call('PTTL', KEYS[i])
      if lasts >= left then left, by = lasts, value end
      local ours = begins(value, pending) or begins(value, term)
      local granted = ours and string.match(value, '^%l:%x+:%d+')
      grant = grant or granted
      if granted and granted == grant then repeated = repeated + 1 end
    else
      free = free + 1
    end
  end
  local all = last - first + 1
  if repeated == all then return tonumber(string.match(grant, '%d+$')) end
  if free < all then return {left, sub(by, 1, LONGEST)} end
  local value
  value, fence = grant_to(request)
  value = value .. tail
  for i = first, last do
    call('SET', KEYS[i], value, 'PXAT', expires)
    written[KEYS[i]] = value
  end
  return fence
end

local function confirm(first, last, granted, term)
  local left
  for i = first, last do
    local key = KEYS[i]
    local value = written[key] or values[i] or call('GET', key)
    if not value then return {value} end
    if not begins(value, granted) and not begins(value, term) then return {sub(value, 1, LONGEST)} end
    local lasts = call('PTTL', key)
    if not left or lasts < left then left = lasts end
  end

  store_ahead()
  fence = math.max(fence, tonumber(sub(term, 36, -2)))
  for i = first, last do
    local key = KEYS[i]
    local value = written[key] or values[i]
    if begins(value, granted) then
      value = term .. sub(value, #granted + 1)
      call('SET', key, value, 'KEEPTTL')
      written[key] = value
    end
  end
  return left
end

local answers, count = {time[1], time[2], 'votes'}, 3
local place, first, keys, expires, tail = 5, 3, 1, nil, nil

local function run()
  local words, late = #ARGV, now > tonumber(ARGV[2])
  -- The length of `<attempt>:`.
  local ATTEMPT = 33
  while place <= words do
    local request = ARGV[place]
    if #request < ATTEMPT then
      keys, expires, tail = tonumber(request), format('%d', now + ARGV[place + 1]), ARGV[place + 2]
      place = place + 3
      request = ARGV[place]
    end
    local from = first
    first, count = first + keys, count + 1
    if sub(request, 2, 2) == ':' then
      place = place + 2
      answers[count] = confirm(from, first - 1, request, ARGV[place - 1])
    else
      place = place + 1
      if late then
        answers[count] = 'late'
      else
        local key, answer = KEYS[from], nil
        if keys == 1 and not values[from] and not written[key] then
          local value, grant = grant_to(request)
          value = value .. tail
          -- Returns the value that was there. It fails if the key is not a string.
          if not call('SET', key, value, 'NX', 'GET', 'PXAT', expires) then
            answer, fence, written[key] = grant, grant, value
          end
        end
        answers[count] = answer or acquire(from, first - 1, request, expires, tail)
      end
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
if stored ~= fence then call('SET', KEYS[2], format('%d', fence)) end
return answers
