-- Bids, bidders and auctions of each channel and day, by three ranks of prices.
CREATE TABLE q16 (channel VARCHAR, `day` VARCHAR, `minute` VARCHAR, bids BIGINT, bids1 BIGINT, bids2 BIGINT,
  bids3 BIGINT, bidders BIGINT, bidders1 BIGINT, bidders2 BIGINT, bidders3 BIGINT, auctions BIGINT, auctions1 BIGINT,
  auctions2 BIGINT, auctions3 BIGINT) WITH ('url' = 'kafka://broker/q16');

INSERT INTO q16
SELECT channel, DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(ts, 'HH:mm')) AS `minute`,
  COUNT(*),
  COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  COUNT(*) FILTER (WHERE price >= 1000000),
  COUNT(DISTINCT bidder),
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
  COUNT(DISTINCT auction),
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bids
GROUP BY channel, DATE_FORMAT(ts, 'yyyy-MM-dd');
