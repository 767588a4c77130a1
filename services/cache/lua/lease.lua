-- ARGV: request_id, server_id, max_samples, ttl_ms, serving ("epoch.step" or "")
local now = now_ms()
local expires = now + tonumber(ARGV[4])
expire_leases(now)
local request = key('request:', ARGV[1])
local granted = redis.call('LRANGE', request, 0, -1)

-- A sample from weights that are too old would be evicted when its turn comes. One with a partial
-- was begun with even older ones, and goes on wherever it can.
local most = capacity(ARGV[5])
local function too_early(sample)
  local rank = redis.call('ZRANK', key('outstanding'), group_of(sample))
  return rank and rank >= most and redis.call('EXISTS', key('partial:', sample)) == 0
end

local function grant(queue, want)
  for _ = 1, want do
    local sample = redis.call('ZRANGE', queue, 0, 0)[1]
    if not sample or too_early(sample) then return end
    redis.call('ZREM', queue, sample)
    local hash = key('sample:', sample)
    granted[#granted + 1] = sample
    granted[#granted + 1] = tostring(redis.call('HINCRBY', hash, 'token', 1))
    redis.call('HINCRBY', hash, 'leases', 1)
    redis.call('HSET', hash, 'server', ARGV[2])
    move(sample, group_facts(group_of(sample))[2], 'pending', 'leased')
    redis.call('ZADD', key('leases'), expires, sample)
  end
end

if #granted == 0 then
  local want = tonumber(ARGV[3])
  if ARGV[5] ~= '' then grant(queue_of(ARGV[5]), want) end
  if #granted / 2 < want then grant(queue_of(''), want - #granted / 2) end
  if #granted > 0 then
    redis.call('RPUSH', request, unpack(granted))
    redis.call('PEXPIRE', request, ARGV[4])
  end
end
local leases = {}
for g = 1, #granted, 2 do
  local sample = granted[g]
  local found = redis.call('HMGET', key('sample:', sample), 'state', 'token', 'leases')
  if found[1] == 'leased' and found[2] == granted[g + 1] then
    leases[#leases + 1] = {sample, granted[g + 1],
      redis.call('HGET', key('group:', group_of(sample)), 'proto'),
      redis.call('GET', key('partial:', sample)) or '', found[3],
      redis.call('ZSCORE', key('leases'), sample)}
  end
end
return leases
