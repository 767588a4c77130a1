-- ARGV: epoch, token, version, rank, world_size, shard
local stale = stale_fence(ARGV[1], ARGV[2])
if stale then return stale end
if redis.call('EXISTS', key('manifest:', ARGV[3])) == 1 then return 'PUBLISHED' end
redis.call('HSET', key('shards:', ARGV[3]), ARGV[4], ARGV[6])
redis.call('EXPIRE', key('shards:', ARGV[3]), 3600)
return 'OK'
