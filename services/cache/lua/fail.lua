-- ARGV: sample, token, kind, reason, retryable, server. Returns {requeued, fails}.
-- A server that fails everything must not use up a sample's attempts alone, and a sample that fails
-- wherever it goes must not use up all of them.
local function servers_failed_on(sample, server)
  local known = redis.call('HGET', key('sample:', sample), 'failed_on') or '\n'
  if not string.find(known, '\n' .. server .. '\n', 1, true) then
    known = known .. server .. '\n'
    redis.call('HSET', key('sample:', sample), 'failed_on', known)
  end
  return select(2, string.gsub(known, '\n', '')) - 1
end

local state, facts = held(ARGV[1], ARGV[2])
if not state then
  if facts == 'done' then return {0, 0} end
  return facts
end
local fails = redis.call('HINCRBY', key('sample:', ARGV[1]), 'fails', 1)
redis.call('LPUSH', key('reasons:', ARGV[1]), ARGV[4])
redis.call('LTRIM', key('reasons:', ARGV[1]), 0, 9)
redis.call('SET', key('last_failure'), ARGV[4])
take_out(ARGV[1], state, facts)
local servers = servers_failed_on(ARGV[1], ARGV[6])
if ARGV[5] == '1' and fails < MAX_ATTEMPTS and servers < POISON_SERVERS then
  -- A fresh token fences a repeat of this very call.
  redis.call('HINCRBY', key('sample:', ARGV[1]), 'token', 1)
  redis.call('DEL', key('partial:', ARGV[1]))
  if state == 'leased' then move(ARGV[1], facts[2], 'leased', 'pending') end
  push_pending(ARGV[1], facts)
  return {1, fails}
end
local kind = ARGV[3]
if ARGV[5] == '1' then kind = 'POISON' end
fail_sample(ARGV[1], group_of(ARGV[1]), facts[2], state, kind)
return {0, fails}
