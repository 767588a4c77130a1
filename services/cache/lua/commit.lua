-- ARGV: sample, token, server, summary, payload, upload_id, oldest epoch, oldest step
local state, facts = held(ARGV[1], ARGV[2])
if not state then
  if facts == 'done' then
    redis.call('HINCRBY', key('totals'), 'duplicates', 1)
    return 'DUPLICATE'
  end
  return facts
end
local problem = store_payload(key('payload:', ARGV[1]), ARGV[5], ARGV[6])
if problem then return problem end
local gid = group_of(ARGV[1])
take_out(ARGV[1], state, facts)
redis.call('DEL', key('partial:', ARGV[1]))
redis.call('HSET', key('sample:', ARGV[1]), 'summary', ARGV[4], 'server', ARGV[3],
  'epoch', ARGV[7], 'step', ARGV[8])
redis.call('HINCRBY', key('group:', gid), 'committed', 1)
move(ARGV[1], facts[2], state, 'committed')
member_done(gid)
return 'COMMITTED'
