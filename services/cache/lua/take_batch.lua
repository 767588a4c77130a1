-- ARGV: epoch, token, step. Returns {assigned, ready groups, groups}.
local stale = stale_fence(ARGV[1], ARGV[2])
if stale then return stale end
local step = tonumber(ARGV[3])
local bound = number('lineage', 'max_staleness')
local evict = redis.call('HGET', key('lineage'), 'on_stale') ~= '2'
local restores = redis.call('HGETALL', key('restores'))

-- A token of a dead lineage counts from the step the surviving lineages were restored from.
local function staleness_of(sample)
  local made = redis.call('HMGET', key('sample:', sample), 'epoch', 'step')
  local at = tonumber(made[2])
  for r = 1, #restores, 2 do
    if tonumber(restores[r]) > tonumber(made[1]) then
      at = math.min(at, tonumber(restores[r + 1]))
    end
  end
  return math.max(0, step - 1 - at)
end

-- Evicts stale samples; returns false when the group is not worth training any more.
local function still_trainable(gid)
  local left = {}
  for _, sample in ipairs(members(gid, 'ready')) do
    local staleness = staleness_of(sample)
    if evict and staleness > bound then
      move(sample, '1', 'ready', 'evicted')
    else
      redis.call('HSET', key('sample:', sample), 'staleness', staleness)
      left[#left + 1] = sample
    end
  end
  if #left >= 2 then return true end
  for _, sample in ipairs(left) do move(sample, '1', 'ready', 'dropped') end
  redis.call('ZREM', key('ready'), gid)
  redis.call('ZREM', key('outstanding'), gid)
  bury_group(gid)
  return false
end

local assigned = key('assigned:', ARGV[3])
if redis.call('EXISTS', assigned) == 0 then
  local last = number('lineage', 'assigned_step')
  if step ~= last + 1 then
    return refuse('FAILED_PRECONDITION', 'step ' .. step .. ' cannot be assigned: step ' .. last
      .. ' was the last one')
  end
  local want = number('lineage', 'groups_per_step')
  local chosen = {}
  for _, gid in ipairs(redis.call('ZRANGE', key('ready'), 0, -1)) do
    if #chosen < want and still_trainable(gid) then chosen[#chosen + 1] = gid end
  end
  if #chosen < want then return {0, redis.call('ZCARD', key('ready')), {}} end
  for _, gid in ipairs(chosen) do
    redis.call('ZREM', key('ready'), gid)
    redis.call('ZREM', key('outstanding'), gid)
    redis.call('RPUSH', assigned, gid)
    for _, sample in ipairs(members(gid, 'ready')) do move(sample, '1', 'ready', 'assigned') end
  end
  redis.call('HSET', key('lineage'), 'assigned_step', step)
end
local groups = {}
for _, gid in ipairs(redis.call('LRANGE', assigned, 0, -1)) do
  local samples = {}
  for _, sample in ipairs(members(gid, 'assigned')) do
    local facts = redis.call('HMGET', key('sample:', sample), 'summary', 'staleness')
    samples[#samples + 1] = {sample, facts[1], facts[2]}
  end
  groups[#groups + 1] = {gid, redis.call('HGET', key('group:', gid), 'seq'), samples}
end
return {1, redis.call('ZCARD', key('ready')), groups}
