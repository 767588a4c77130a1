-- ARGV: request_id, token, restored_step, groups_per_step, max_staleness, on_stale
local committed = number('lineage', 'committed_step')
if redis.call('HGET', key('lineage'), 'request_id') ~= ARGV[1] then
  if tonumber(ARGV[3]) < committed then
    return refuse('FAILED_PRECONDITION', 'cannot restore step ' .. ARGV[3] .. ': step '
      .. committed .. ' is committed and its data is gone; restore a checkpoint of step '
      .. committed .. ' or later, or start another run')
  end
  local epoch = redis.call('HINCRBY', key('lineage'), 'epoch', 1)
  redis.call('HSET', key('lineage'), 'request_id', ARGV[1], 'token', ARGV[2],
    'restored', ARGV[3], 'groups_per_step', ARGV[4], 'max_staleness', ARGV[5],
    'on_stale', ARGV[6])
  redis.call('HSET', key('restores'), epoch, ARGV[3])
end
local living = redis.call('HMGET', key('lineage'), 'epoch', 'token')
return {living[1], living[2], committed, number('lineage', 'assigned_step'),
  number('totals', 'groups')}
