-- The folders in the address of each bid.
CREATE TABLE q22 (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, dir1 VARCHAR, dir2 VARCHAR,
  dir3 VARCHAR) WITH ('url' = 'kafka://broker/q22');

INSERT INTO q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5)
FROM bids;
