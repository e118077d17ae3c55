-- Every bid, in folders by day and minute.
CREATE TABLE q10 (auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP(3), extra VARCHAR, `day` VARCHAR,
  `minute` VARCHAR) PARTITIONED BY (`day`, `minute`) WITH ('url' = 'file:///tmp/bids/?format=parquet');

INSERT INTO q10
SELECT auction, bidder, price, ts, extra, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm') FROM bids;
