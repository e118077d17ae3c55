-- The auctions with the most bids of the last ten seconds, every two seconds.
CREATE TABLE q5 (auction BIGINT, num BIGINT) WITH ('url' = 'kafka://broker/q5');

INSERT INTO q5
SELECT counts.auction, counts.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS since, window_end AS until
  FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS counts
JOIN (
  SELECT MAX(num) AS most, since, until
  FROM (
    SELECT COUNT(*) AS num, window_start AS since, window_end AS until
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS others
  GROUP BY since, until
) AS best
ON counts.since = best.since AND counts.until = best.until AND counts.num >= best.most;
