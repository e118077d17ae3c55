-- Joins in time and in windows, the first rows of windows, and unions.
CREATE TABLE bids (item BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
CREATE TABLE asks (item INT NOT NULL, price BIGINT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts) WITH ('url' = 'kafka://broker/asks');
CREATE TABLE pairs (item BIGINT, p BIGINT, q BIGINT) WITH ('url' = 'kafka://broker/pairs');
CREATE TABLE groups (item BIGINT, n BIGINT, m BIGINT) WITH ('url' = 'kafka://broker/groups');
CREATE TABLE best (item BIGINT, price BIGINT, rn BIGINT) WITH ('url' = 'kafka://broker/best');
CREATE TABLE last_bids (item BIGINT, price BIGINT) WITH ('url' = 'kafka://broker/last_bids');
CREATE TABLE alls (item BIGINT, n BIGINT) WITH ('url' = 'kafka://broker/alls');
CREATE VIEW offers AS SELECT item, ts FROM bids UNION ALL SELECT item, ts FROM asks;
INSERT INTO pairs SELECT l.item, l.price, r.price FROM bids l LEFT JOIN asks r ON l.item = r.item
  AND r.ts BETWEEN l.ts - INTERVAL '1' SECOND AND l.ts + INTERVAL '2' SECOND;
INSERT INTO groups SELECT l.item, l.n, r.m FROM (SELECT window_start, window_end, item, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, item) AS l
  FULL JOIN (SELECT window_start, window_end, item, SUM(price) AS m
    FROM TABLE(TUMBLE(TABLE asks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, item) AS r
  ON l.item = r.item AND l.window_start = r.window_start AND l.window_end = r.window_end;
INSERT INTO best SELECT item, price, rn FROM (SELECT item, price, ROW_NUMBER() OVER (PARTITION BY window_start,
  window_end, channel ORDER BY price DESC, ts) AS rn
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) AS firsts WHERE rn <= 3;
INSERT INTO last_bids SELECT item, price FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end, item ORDER BY ts DESC) = 1;
INSERT INTO alls SELECT item, COUNT(*) FROM TABLE(TUMBLE(TABLE offers, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, item;
