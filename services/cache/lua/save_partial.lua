-- ARGV: sample, token, has_partial, payload, upload_id, release
local state, facts = held(ARGV[1], ARGV[2])
if not state then
  if facts == 'done' then
    return refuse('ABORTED', ARGV[1] .. ' is finished already')
  end
  return facts
end
if ARGV[3] == '1' then
  local problem = store_payload(key('partial:', ARGV[1]), ARGV[4], ARGV[5])
  if problem then return problem end
end
if ARGV[6] == '1' or state == 'pending' then
  take_out(ARGV[1], state, facts)
  if state == 'leased' then move(ARGV[1], facts[2], 'leased', 'pending') end
  push_pending(ARGV[1], facts)
end
return 'OK'
