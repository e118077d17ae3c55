-- The town with the most sales of each minute, from one topic of Kafka to another, exactly once.
--
-- busy_towns.py is the same job in Python. It needs pip install 'malflow[kafka]', and a Kafka:
--
--   docker run --detach --name kafka --publish 9092:9092 apache/kafka:4.1.0
--   docker exec kafka /opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic orders
--   docker exec kafka /opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic busiest
--   docker exec --interactive kafka /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server localhost:9092 \
--       --topic orders <<'END'
--   {"town": "Ulm", "cents": 3050, "ts": "2026-03-01 10:00:02"}
--   {"town": "Bonn", "cents": 700, "ts": "2026-03-01 10:00:31"}
--   {"town": "Bonn", "cents": 900, "ts": "2026-03-01 10:02:10"}
--   END
--   malflow run examples/busy_towns.sql --persistence state --snapshots 1s
--   docker exec kafka /opt/kafka/bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 \
--       --topic busiest --from-beginning --isolation-level read_committed

CREATE TABLE orders (
  town STRING,
  cents BIGINT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('url' = 'kafka://${KAFKA:-localhost:9092}/orders', 'format' = 'json');

CREATE TABLE busiest (
  since TIMESTAMP(3),
  town STRING,
  orders BIGINT,
  cents BIGINT
) WITH ('url' = 'kafka://${KAFKA:-localhost:9092}/busiest', 'format' = 'json', 'delivery' = 'exactly-once');

CREATE VIEW minutes AS
SELECT window_start, window_end, town, COUNT(*) AS orders, SUM(cents) AS cents
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, town;

INSERT INTO busiest
SELECT window_start, town, orders, cents FROM minutes
QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY cents DESC, town) = 1;
