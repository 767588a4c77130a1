-- ARGV: epoch, token, then for each group: id, n, purpose, eval_id, pinned, proto
local stale = stale_fence(ARGV[1], ARGV[2])
if stale then return stale end
local most = capacity('')
local outstanding = redis.call('ZCARD', key('outstanding'))
local accepted, full = {}, false
for a = 3, #ARGV, 6 do
  local gid, n, purpose, eval_id, pinned = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2],
    ARGV[a + 3], ARGV[a + 4]
  local train = purpose == '1'
  local known = redis.call('EXISTS', key('group:', gid), key('gone:', gid)) > 0
  if train and not known and outstanding >= most then full = true end
  if not (train and full) then
    accepted[#accepted + 1] = gid
    if not known then
      local seq = redis.call('HINCRBY', key('totals'), 'sequence', 1)
      redis.call('HSET', key('group:', gid), 'seq', seq, 'n', n, 'purpose', purpose,
        'eval', eval_id, 'pinned', pinned, 'proto', ARGV[a + 5], 'open', n, 'committed', 0)
      for i = 0, n - 1 do
        local sample = gid .. '/' .. i
        redis.call('HSET', key('sample:', sample), 'state', 'pending', 'token', 0,
          'leases', 0, 'fails', 0)
        push_pending(sample, {seq, purpose, pinned})
      end
      if train then
        redis.call('ZADD', key('outstanding'), seq, gid)
        outstanding = outstanding + 1
        redis.call('HINCRBY', key('totals'), 'groups', 1)
        redis.call('HINCRBY', key('counts'), 'enqueued', n)
        redis.call('HINCRBY', key('counts'), 'pending', n)
      else
        redis.call('HINCRBY', key('eval:', eval_id), 'n', n)
        redis.call('HINCRBY', key('eval:', eval_id), 'open', n)
        redis.call('HINCRBY', key('totals'), 'eval_open', n)
        redis.call('RPUSH', key('eval_groups:', eval_id), gid)
      end
    end
  end
end
return {accepted, math.max(0, most - outstanding)}
