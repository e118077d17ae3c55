-- The highest bids of each ten seconds. A bid at the end of a window counts for both windows.
CREATE TABLE q7 (auction BIGINT, price BIGINT, bidder BIGINT, ts TIMESTAMP(3), extra VARCHAR)
  WITH ('url' = 'kafka://broker/q7');

INSERT INTO q7
SELECT b.auction, b.price, b.bidder, b.ts, b.extra
FROM bids AS b
JOIN (
  SELECT MAX(price) AS price, window_end AS until
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS highest
ON b.price = highest.price
WHERE b.ts BETWEEN highest.until - INTERVAL '10' SECOND AND highest.until;
