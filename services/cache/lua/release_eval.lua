-- ARGV: eval_id
for _, gid in ipairs(redis.call('LRANGE', key('eval_groups:', ARGV[1]), 0, -1)) do
  local pinned = group_facts(gid)[3]
  for _, sample in ipairs(all_members(gid)) do
    redis.call('ZREM', queue_of(pinned), sample)
    redis.call('ZREM', key('leases'), sample)
    local state = state_of(sample)
    if state == 'pending' or state == 'leased' then
      redis.call('HINCRBY', key('totals'), 'eval_open', -1)
    end
  end
  bury_group(gid)
end
redis.call('DEL', key('eval:', ARGV[1]), key('eval_groups:', ARGV[1]))
return 'OK'
