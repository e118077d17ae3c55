-- Names down to an operator: views, common tables, aliases, hints, grouping sets, and siblings without a name.
CREATE TABLE bids (item BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
CREATE TABLE hot (since TIMESTAMP(3), n BIGINT) WITH ('url' = 'kafka://broker/hot');
CREATE TABLE cube (item BIGINT, channel STRING, n BIGINT) WITH ('url' = 'kafka://broker/cube');
CREATE VIEW cents AS SELECT item, price * 100 AS price, channel AS via, ts FROM bids WHERE price > 0;
CREATE VIEW sums AS SELECT window_time AS at, via, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE cents, DESCRIPTOR(ts), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, window_time, via;
INSERT INTO hot WITH few AS (SELECT window_time AS at, MAX(total) AS most FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(at),
    INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, window_time)
  SELECT window_start, COUNT(most) FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(at), INTERVAL '1' HOUR))
  GROUP BY window_start, window_end;
INSERT INTO hot SELECT Minutes.a, Minutes.n FROM (SELECT window_start AS a, SUM(item) AS n
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end) AS Minutes;
INSERT INTO hot SELECT /*+ NAME('daily') */ window_start, SUM(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts),
  INTERVAL '1' DAY)) GROUP BY window_start, window_end;
INSERT INTO hot SELECT window_start, SUM(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts),
  INTERVAL '2' DAY)) GROUP BY window_start, window_end;
INSERT INTO cube SELECT item, channel, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, CUBE(item, channel);
