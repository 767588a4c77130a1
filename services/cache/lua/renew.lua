-- ARGV: ttl_ms, then sample id and token of each lease. Returns the lost ones.
local now = now_ms()
local lost = {}
for a = 2, #ARGV, 2 do
  local found = redis.call('HMGET', key('sample:', ARGV[a]), 'state', 'token')
  if found[1] == 'leased' and found[2] == ARGV[a + 1] then
    redis.call('ZADD', key('leases'), now + tonumber(ARGV[1]), ARGV[a])
  else
    lost[#lost + 1] = ARGV[a]
    lost[#lost + 1] = ARGV[a + 1]
  end
end
expire_leases(now)
return lost
