"""The statements of the golden files of SQL, with a state of each kind that statements have.

They must not change: their results, and the names and definitions of their states, are in the golden files.
"""

from __future__ import annotations

from typing import Any

from malflow import StreamProvider
from malflow.sinks import VecSink

__all__ = ["build_statements"]

_TEXT = """
CREATE TABLE readings (sensor STRING, `value` DOUBLE,
  ts AS TIMESTAMPADD(HOUR, CAST(FLOOR(`value`) AS INT), TIMESTAMP '2026-03-28 00:00:00'),
  WATERMARK FOR ts AS ts - INTERVAL '2' HOUR) WITH ('url' = 'kafka://broker/readings');
CREATE VIEW few AS SELECT sensor, CAST(FLOOR(`value`) AS INT) AS hours, ts FROM readings WHERE sensor <> 's4';
CREATE TABLE sums (since TIMESTAMP(3), sensor STRING, total DOUBLE, n BIGINT, mean DOUBLE)
  WITH ('url' = 'kafka://broker/sums');
CREATE TABLE kinds (since TIMESTAMP(3), n BIGINT, least INT) WITH ('url' = 'kafka://broker/kinds');
CREATE TABLE growing (until TIMESTAMP(3), sensor STRING, n BIGINT) WITH ('url' = 'kafka://broker/growing');
CREATE TABLE sessions (since TIMESTAMP(3), sensor STRING, n BIGINT) WITH ('url' = 'kafka://broker/sessions');
CREATE TABLE pairs (sensor STRING, one INT, other INT) WITH ('url' = 'kafka://broker/pairs');
CREATE TABLE both (since TIMESTAMP(3), one STRING, other STRING) WITH ('url' = 'kafka://broker/both');
CREATE TABLE first (sensor STRING, hours INT, rn BIGINT) WITH ('url' = 'kafka://broker/first');
CREATE TABLE minutes (since TIMESTAMP(3), most BIGINT) WITH ('url' = 'kafka://broker/minutes');
INSERT INTO sums SELECT window_start, sensor, SUM(`value`), COUNT(*), AVG(`value`)
  FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '7' HOUR)) GROUP BY window_start, window_end, sensor;
INSERT INTO kinds SELECT window_start, COUNT(DISTINCT sensor), MIN(hours) FILTER (WHERE sensor <> 's1')
  FROM TABLE(HOP(TABLE few, DESCRIPTOR(ts), INTERVAL '3' HOUR, INTERVAL '9' HOUR)) GROUP BY window_start, window_end;
INSERT INTO growing SELECT window_end, sensor, COUNT(*)
  FROM TABLE(CUMULATE(TABLE readings, DESCRIPTOR(ts), INTERVAL '6' HOUR, INTERVAL '1' DAY))
  GROUP BY window_start, window_end, sensor;
INSERT INTO sessions WITH often AS (SELECT sensor, ts FROM few WHERE MOD(hours, 9) > 2)
  SELECT window_start, sensor, COUNT(*)
  FROM TABLE(SESSION(TABLE often PARTITION BY sensor, DESCRIPTOR(ts), INTERVAL '2' HOUR))
  GROUP BY window_start, window_end, sensor;
INSERT INTO pairs SELECT l.sensor, l.hours, r.hours FROM few l LEFT JOIN (SELECT * FROM few WHERE MOD(hours, 3) = 0) r
  ON l.sensor = r.sensor AND r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND l.ts + INTERVAL '1' HOUR;
INSERT INTO both SELECT l.window_start, l.sensor, r.sensor
  FROM (SELECT * FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '5' HOUR)) WHERE MOD(hours, 5) = 1) l
  JOIN (SELECT * FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '5' HOUR)) WHERE MOD(hours, 5) = 4) r
  ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.sensor = r.sensor;
INSERT INTO first SELECT sensor, hours, rn FROM (SELECT sensor, hours, ROW_NUMBER() OVER (PARTITION BY window_start,
  window_end ORDER BY hours DESC, sensor) AS rn FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '4' HOUR)))
  WHERE rn <= 2;
INSERT INTO minutes WITH counts AS (SELECT window_time AS at, sensor, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '2' HOUR))
  GROUP BY window_start, window_end, window_time, sensor)
  SELECT window_start, MAX(n) FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(at), INTERVAL '8' HOUR))
  GROUP BY window_start, window_end;
"""


def build_statements(provider: StreamProvider, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
    """Run the statements over the readings."""

    def connected(table: str, _url: str, _options: dict[str, str]) -> Any:
        return source if table == "readings" else sinks.setdefault(table, VecSink())

    provider.sql("shop", connect=connected).run(_TEXT)
