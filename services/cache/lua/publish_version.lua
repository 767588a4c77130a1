-- ARGV: epoch, token, version, builds_on or "", target digest, header, chunk digests...
local stale = stale_fence(ARGV[1], ARGV[2])
if stale then return stale end
local manifest = key('manifest:', ARGV[3])
local digests = key('digests')

if redis.call('EXISTS', manifest) == 1 then
  if redis.call('HGET', digests, ARGV[3]) ~= ARGV[5] then
    return refuse('ALREADY_EXISTS', 'version ' .. ARGV[3] .. ' exists with other weights')
  end
  return 'AGAIN'
end
local latest = redis.call('GET', key('latest'))
if latest then
  local old_epoch, old_step = parts(latest)
  local epoch, step = parts(ARGV[3])
  if epoch < old_epoch or (epoch == old_epoch and step <= old_step) then
    return refuse('ABORTED', 'version ' .. ARGV[3] .. ' is not newer than ' .. latest)
  end
end
if ARGV[4] ~= '' and redis.call('EXISTS', key('manifest:', ARGV[4])) == 0 then
  return refuse('FAILED_PRECONDITION', 'version ' .. ARGV[3] .. ' builds on ' .. ARGV[4]
    .. ', which is not here')
end
for a = 7, #ARGV do
  if redis.call('EXISTS', key('chunk:', ARGV[a])) == 0 then
    return refuse('FAILED_PRECONDITION', 'chunk ' .. ARGV[a] .. ' is not stored')
  end
end
for a = 7, #ARGV do
  redis.call('PERSIST', key('chunk:', ARGV[a]))
  redis.call('HINCRBY', key('chunk_refs'), ARGV[a], 1)
  redis.call('RPUSH', key('chunks_of:', ARGV[3]), ARGV[a])
end
redis.call('PERSIST', key('shards:', ARGV[3]))
redis.call('SET', manifest, ARGV[6])
redis.call('HSET', digests, ARGV[3], ARGV[5])
redis.call('RPUSH', key('versions'), ARGV[3])
redis.call('SET', key('latest'), ARGV[3])

-- A new anchor retires what lies before the anchor before it.
if ARGV[4] == '' then
  local previous = redis.call('LINDEX', key('anchors'), -1)
  redis.call('RPUSH', key('anchors'), ARGV[3])
  while previous and redis.call('LINDEX', key('versions'), 0) ~= previous do
    local old = redis.call('LPOP', key('versions'))
    for _, chunk in ipairs(redis.call('LRANGE', key('chunks_of:', old), 0, -1)) do
      if redis.call('HINCRBY', key('chunk_refs'), chunk, -1) <= 0 then
        redis.call('HDEL', key('chunk_refs'), chunk)
        redis.call('DEL', key('chunk:', chunk))
      end
    end
    redis.call('DEL', key('manifest:', old), key('shards:', old), key('chunks_of:', old))
    redis.call('HDEL', digests, old)
  end
  redis.call('LTRIM', key('anchors'), -2, -1)
end
return 'OK'
