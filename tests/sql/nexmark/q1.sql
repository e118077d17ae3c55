-- Every bid, with its price in euros.
CREATE TABLE q1 (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), ts TIMESTAMP(3), extra VARCHAR)
  WITH ('url' = 'kafka://broker/q1');

INSERT INTO q1 SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bids;
