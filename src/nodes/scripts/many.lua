-- KEYS  3.. the keys of many requests, one request after another
-- ARGV  1 the expected marker, 2 the earliest deadline of the requests; from 3 five for each request: the name of its script,
--       its number of keys, and the script's arguments from the third on
-- Runs the script of each request, in order. `scripts` contains these scripts as functions of their KEYS and ARGV. An error in
-- one of them is the answer to this request only.
local answers = answer('votes')
local first = 3
for place = 3, #ARGV, 5 do
  local keys = {KEYS[1], KEYS[2]}
  for i = first, first + ARGV[place + 1] - 1 do
    keys[#keys + 1] = KEYS[i]
  end
  first = first + ARGV[place + 1]
  local arguments = {ARGV[1], ARGV[2], ARGV[place + 2], ARGV[place + 3], ARGV[place + 4]}
  local returned, result = pcall(scripts[ARGV[place]], keys, arguments)
  -- Depending on its version, the server raises an error as a text or as a table.
  if not returned and type(result) == 'string' then result = {err = result} end
  answers[#answers + 1] = result
end
return answers
