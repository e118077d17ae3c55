-- Every bid.
CREATE TABLE q0 (auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP(3), extra VARCHAR)
  WITH ('url' = 'kafka://broker/q0');

INSERT INTO q0 SELECT auction, bidder, price, ts, extra FROM bids;
