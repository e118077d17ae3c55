-- How often each person bids while active: until ten seconds without a bid.
CREATE TABLE q11 (bidder BIGINT, num BIGINT, since TIMESTAMP(3), until TIMESTAMP(3))
  WITH ('url' = 'kafka://broker/q11');

INSERT INTO q11
SELECT b.bidder, COUNT(*), SESSION_START(b.ts, INTERVAL '10' SECOND), SESSION_END(b.ts, INTERVAL '10' SECOND)
FROM bids AS b
GROUP BY b.bidder, SESSION(b.ts, INTERVAL '10' SECOND);
