-- ARGV: sample, token, kind, reason, retryable, max_attempts. Returns {requeued, fails}.
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
if ARGV[5] == '1' and fails < tonumber(ARGV[6]) then
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
