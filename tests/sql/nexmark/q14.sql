-- The bids of middle prices, with the time of the day, and the number of letters c.
CREATE FUNCTION count_char AS 'tests.kit.auction_site:count_char' LANGUAGE PYTHON;

CREATE TABLE q14 (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), part VARCHAR, ts TIMESTAMP(3), extra VARCHAR,
  letters BIGINT) WITH ('url' = 'kafka://broker/q14');

INSERT INTO q14
SELECT auction, bidder, 0.908 * price,
  CASE
    WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime'
    WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END,
  ts, extra, count_char(extra, 'c')
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
