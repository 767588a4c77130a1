-- ARGV: epoch, token, step. Returns the samples trained so far.
local stale = stale_fence(ARGV[1], ARGV[2])
if stale then return stale end
local step = tonumber(ARGV[3])
if step > number('lineage', 'assigned_step') then
  return refuse('FAILED_PRECONDITION', 'step ' .. step .. ' was never assigned')
end
for each = number('lineage', 'committed_step') + 1, step do
  local assigned = key('assigned:', tostring(each))
  for _, gid in ipairs(redis.call('LRANGE', assigned, 0, -1)) do
    for _, sample in ipairs(members(gid, 'assigned')) do
      move(sample, '1', 'assigned', 'trained')
    end
    bury_group(gid)
  end
  redis.call('DEL', assigned)
  redis.call('HSET', key('lineage'), 'committed_step', each)
end
return number('counts', 'trained')
