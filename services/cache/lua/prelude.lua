-- Shared by every transition. KEYS[1] is the run's key prefix; time is Redis' own. MAX_ATTEMPTS and
-- POISON_SERVERS come from the configuration.
local P = KEYS[1]
local PARTIAL_FIRST = 2 ^ 40 -- pending score = sequence, plus this without a partial

local function key(name, id)
  return P .. name .. (id or '')
end

local function number(hash, field)
  return tonumber(redis.call('HGET', key(hash), field) or '0')
end

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function refuse(code, message)
  return redis.error_reply('MOERA_' .. code .. ' ' .. message)
end

local function stale_fence(epoch, token)
  local living = redis.call('HMGET', key('lineage'), 'epoch', 'token')
  if living[1] ~= epoch or living[2] ~= token then
    return refuse('ABORTED', 'lineage ' .. epoch .. ' is not the living one ('
      .. (living[1] or 'none') .. '): a newer learner has taken over')
  end
end

local function group_of(sample)
  return string.match(sample, '^(.*)/%d+$')
end

-- Samples of evaluation groups are counted apart: they are outside the accounting identity.
local function move(sample, purpose, from, to)
  redis.call('HSET', key('sample:', sample), 'state', to)
  if purpose == '1' then
    redis.call('HINCRBY', key('counts'), from, -1)
    redis.call('HINCRBY', key('counts'), to, 1)
  end
end

local function queue_of(pinned)
  if pinned == '' then return key('pending') end
  return key('pending:', pinned)
end

local function push_pending(sample, group)
  local seq = tonumber(group[1])
  local score = seq
  if redis.call('EXISTS', key('partial:', sample)) == 0 then score = score + PARTIAL_FIRST end
  redis.call('ZADD', queue_of(group[3]), score, sample)
end

-- {seq, purpose, pinned} of a group
local function group_facts(gid)
  return redis.call('HMGET', key('group:', gid), 'seq', 'purpose', 'pinned')
end

local function forget_sample(sample)
  redis.call('DEL', key('sample:', sample), key('payload:', sample), key('partial:', sample),
    key('reasons:', sample))
end

local function all_members(gid)
  local found = {}
  for i = 0, tonumber(redis.call('HGET', key('group:', gid), 'n')) - 1 do
    found[#found + 1] = gid .. '/' .. i
  end
  return found
end

local function bury_group(gid)
  for _, sample in ipairs(all_members(gid)) do forget_sample(sample) end
  redis.call('DEL', key('group:', gid))
  redis.call('SET', key('gone:', gid), '1', 'EX', 86400)
end

local function state_of(sample)
  return redis.call('HGET', key('sample:', sample), 'state')
end

local function members(gid, state)
  local found = {}
  for _, sample in ipairs(all_members(gid)) do
    if state_of(sample) == state then found[#found + 1] = sample end
  end
  return found
end

-- Epoch and step of a version "epoch.step".
local function parts(version)
  local epoch, step = string.match(version, '^(%d+)%.(%d+)$')
  return tonumber(epoch), tonumber(step)
end

-- Outstanding groups (neither assigned nor terminal), counted from the oldest, that a weight version
-- ("" for the latest) can sample now and that will be trained within the staleness bound. A batch
-- that was assigned but is not in those weights yet takes the place of one.
local function capacity(version)
  local step = number('lineage', 'restored')
  if version == '' then version = redis.call('GET', key('latest')) or '' end
  if version ~= '' then
    local epoch, at = parts(version)
    if epoch == number('lineage', 'epoch') then step = at else step = math.min(step, at) end
  end
  local missing = math.max(0, number('lineage', 'assigned_step') - step)
  return math.max(0, number('lineage', 'max_staleness') + 1 - missing)
    * number('lineage', 'groups_per_step')
end

-- Called when one more member of a group is committed or failed for good.
local function member_done(gid)
  local left = redis.call('HINCRBY', key('group:', gid), 'open', -1)
  local facts = redis.call('HMGET', key('group:', gid), 'seq', 'purpose', 'committed', 'eval')
  if facts[2] ~= '1' then
    redis.call('HINCRBY', key('eval:', facts[4]), 'open', -1)
    redis.call('HINCRBY', key('totals'), 'eval_open', -1)
    return
  end
  if left > 0 then return end
  local target = 'ready'
  if tonumber(facts[3]) < 2 then target = 'dropped' end
  for _, sample in ipairs(members(gid, 'committed')) do move(sample, '1', 'committed', target) end
  if target == 'ready' then
    redis.call('ZADD', key('ready'), facts[1], gid)
  else
    redis.call('ZREM', key('outstanding'), gid)
    bury_group(gid)
  end
end

local function fail_sample(sample, gid, purpose, from, kind)
  redis.call('HINCRBY', key('failures'), kind, 1)
  redis.call('HSET', key('sample:', sample), 'failure', kind)
  redis.call('DEL', key('partial:', sample))
  move(sample, purpose, from, 'failed')
  member_done(gid)
end

-- A lease ran out: its server is gone or stuck. The token stays, so that a late commit still
-- wins unless somebody else has leased the sample since.
local function expire_leases(now)
  local lost = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', now, 'LIMIT', 0, 512)
  for _, sample in ipairs(lost) do
    redis.call('ZREM', key('leases'), sample)
    redis.call('HINCRBY', key('totals'), 'expired', 1)
    local gid = group_of(sample)
    local facts = group_facts(gid)
    redis.call('LPUSH', key('reasons:', sample), 'lease of '
      .. redis.call('HGET', key('sample:', sample), 'server') .. ' ran out')
    redis.call('LTRIM', key('reasons:', sample), 0, 9)
    if redis.call('HINCRBY', key('sample:', sample), 'fails', 1) >= MAX_ATTEMPTS then
      fail_sample(sample, gid, facts[2], 'leased', 'POISON')
    else
      move(sample, facts[2], 'leased', 'pending')
      push_pending(sample, facts)
    end
  end
end

-- Returns state and facts of a sample whose lease token is right, or nil and an answer.
local function held(sample, token)
  local found = redis.call('HMGET', key('sample:', sample), 'state', 'token')
  if not found[1] then
    if redis.call('EXISTS', key('gone:', group_of(sample) or '')) == 1 then return nil, 'done' end
    return nil, refuse('NOT_FOUND', 'no sample ' .. sample)
  end
  if found[1] ~= 'leased' and found[1] ~= 'pending' then return nil, 'done' end
  if found[2] ~= token then
    return nil, refuse('ABORTED', 'lease ' .. token .. ' of ' .. sample .. ' was lost to lease '
      .. found[2])
  end
  return found[1], group_facts(group_of(sample))
end

local function take_out(sample, state, facts)
  if state == 'leased' then
    redis.call('ZREM', key('leases'), sample)
  else
    redis.call('ZREM', queue_of(facts[3]), sample)
  end
end

-- Moves an uploaded payload, or stores an inline one.
local function store_payload(target, payload, upload)
  if upload ~= '' then
    if redis.call('EXISTS', key('upload:', upload)) == 0 then
      return refuse('NOT_FOUND', 'no upload ' .. upload .. ': send its chunks again')
    end
    redis.call('RENAME', key('upload:', upload), target)
    redis.call('PERSIST', target)
  else
    redis.call('SET', target, payload)
  end
end
