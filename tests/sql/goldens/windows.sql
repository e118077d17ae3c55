-- Windows of each kind, with the aggregates that share their states.
CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
CREATE TABLE tumbling (since TIMESTAMP(3), item BIGINT, most DECIMAL(10, 2), n BIGINT, mean DECIMAL(38, 6))
  WITH ('url' = 'kafka://broker/tumbling');
CREATE TABLE hopping (item BIGINT, channels BIGINT, dear BIGINT) WITH ('url' = 'kafka://broker/hopping');
CREATE TABLE growing (n BIGINT) WITH ('url' = 'kafka://broker/growing');
CREATE TABLE sessions (item BIGINT, channel STRING, first STRING) WITH ('url' = 'kafka://broker/sessions');
CREATE TABLE names (item BIGINT, channel STRING) WITH ('url' = 'kafka://broker/names');
INSERT INTO tumbling SELECT window_start, item, MAX(price), COUNT(*), AVG(price)
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, item;
INSERT INTO hopping SELECT item % 10, COUNT(DISTINCT channel), COUNT(*) FILTER (WHERE price > 10)
  FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND))
  GROUP BY window_start, window_end, item % 10;
INSERT INTO growing SELECT COUNT(*)
  FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))
  WHERE price > 1 GROUP BY window_start, window_end HAVING COUNT(*) > 1;
INSERT INTO sessions SELECT item, MAX(channel), FIRST_VALUE(channel)
  FROM TABLE(SESSION(TABLE bids PARTITION BY item, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
  GROUP BY window_start, window_end, item;
INSERT INTO names SELECT item, channel FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, item, channel;
