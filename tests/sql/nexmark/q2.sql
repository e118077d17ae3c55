-- The bids for one auction in 123.
CREATE TABLE q2 (auction BIGINT, price BIGINT) WITH ('url' = 'kafka://broker/q2');

INSERT INTO q2 SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0;
