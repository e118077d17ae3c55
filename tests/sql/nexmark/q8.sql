-- The people who came and put something up for sale within the same ten seconds.
CREATE TABLE q8 (id BIGINT, name VARCHAR, since TIMESTAMP(3)) WITH ('url' = 'kafka://broker/q8');

INSERT INTO q8
SELECT newcomer.id, newcomer.name, newcomer.since
FROM (
  SELECT id, name, window_start AS since, window_end AS until
  FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS newcomer
JOIN (
  SELECT seller, window_start AS since, window_end AS until
  FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS seller
ON newcomer.id = seller.seller AND newcomer.since = seller.since AND newcomer.until = seller.until;
