-- One atomic reading.
expire_leases(now_ms())
return {
  redis.call('HGETALL', key('counts')),
  redis.call('HGETALL', key('totals')),
  redis.call('HGETALL', key('failures')),
  redis.call('HGETALL', key('lineage')),
  redis.call('ZCARD', key('ready')),
  redis.call('ZCOUNT', key('pending'), '-inf', PARTIAL_FIRST - 1),
  capacity(''),
  redis.call('ZCARD', key('outstanding')),
  redis.call('GET', key('latest')) or '',
  redis.call('GET', key('last_failure')) or '',
}
