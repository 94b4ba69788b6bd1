#!lua
-- KEYS  3 a key that has no other use
-- Runs every command that the other scripts use, on a key that expires by itself. A refused command is thereby found
-- before a lease depends on it, not at its first renewal.
-- Returns the command that was refused, and the error.
local key = KEYS[3]
local expires = string.format('%d', time[1] * 1000 + 2000)
local commands = {
  {'SET', key, '0', 'NX', 'GET', 'PXAT', expires},
  {'GET', key},
  {'MGET', key},
  {'SET', key, '0', 'KEEPTTL'},
  {'PEXPIRE', key, '2000', 'GT'},
  {'PTTL', key},
  {'DEL', key},
}
for _, command in ipairs(commands) do
  local result = redis.pcall(unpack(command))
  if type(result) == 'table' and result.err then return answer('refused', command[1], result.err) end
end
return answer('checked')
