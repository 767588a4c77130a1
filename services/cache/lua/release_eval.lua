-- ARGV: eval_id
for _, gid in ipairs(redis.call('LRANGE', key('eval_groups:', ARGV[1]), 0, -1)) do
  local facts = group_facts(gid)
  for i = 0, tonumber(facts[4]) - 1 do
    local sample = gid .. '/' .. i
    redis.call('ZREM', queue_of(facts[3]), sample)
    redis.call('ZREM', key('leases'), sample)
    local state = state_of(sample)
    if state == 'pending' or state == 'leased' then
      redis.call('HINCRBY', key('totals'), 'eval_open', -1)
    end
  end
  bury_group(gid, tonumber(facts[4]))
end
redis.call('DEL', key('eval:', ARGV[1]), key('eval_groups:', ARGV[1]))
return 'OK'
