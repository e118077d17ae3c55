-- Every bid that came by a known channel, or with the number of its channel in its address.
CREATE TABLE q21 (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, number VARCHAR)
  WITH ('url' = 'kafka://broker/q21');

INSERT INTO q21
SELECT auction, bidder, price, channel,
  CASE LOWER(channel)
    WHEN 'apple' THEN '0'
    WHEN 'google' THEN '1'
    WHEN 'facebook' THEN '2'
    WHEN 'baidu' THEN '3'
    ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
  END
FROM bids
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
  OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');
