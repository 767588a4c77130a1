-- ARGV: eval_id. Returns {samples, open, {sample, summary, failure}...}.
expire_leases(now_ms())
local found = redis.call('HMGET', key('eval:', ARGV[1]), 'n', 'open')
if not found[1] then return refuse('NOT_FOUND', 'no evaluation ' .. ARGV[1]) end
local done = {}
for _, gid in ipairs(redis.call('LRANGE', key('eval_groups:', ARGV[1]), 0, -1)) do
  for _, sample in ipairs(all_members(gid)) do
    local facts = redis.call('HMGET', key('sample:', sample), 'state', 'summary', 'failure')
    if facts[1] == 'committed' or facts[1] == 'failed' then
      done[#done + 1] = {sample, facts[2] or '', facts[3] or '',
        redis.call('LINDEX', key('reasons:', sample), 0) or ''}
    end
  end
end
return {found[1], found[2], done}
