#!lua
-- KEYS  3 a key that nothing else uses
-- Runs every command that the other scripts need, on a key that ends by itself. A server that refuses one of them is
-- found before a lease depends on it, and not when the lease is to be renewed.
-- Answers the command that was refused, and the error.
local key = KEYS[3]
local commands = {
  {'SET', key, '0', 'PX', '1000'},
  {'GET', key},
  {'INCR', key},
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
