"""Redis: a table as an exactly-once sink and for look-ups, and streams as sources; by redis-py."""

from malflow.errors import not_imported

try:
    import redis as _redis
except ImportError as _missing:
    raise not_imported("malflow.connectors.redis needs redis-py", "redis", _missing) from _missing

from malflow.connectors.redis.connection import BadStreamEntry, RedisDataLost, RedisFailed, UnwritableRow
from malflow.connectors.redis.lookup import RedisLookup
from malflow.connectors.redis.sink import RedisSink
from malflow.connectors.redis.stream_source import RedisStreamSource

__all__ = [
    "BadStreamEntry",
    "RedisDataLost",
    "RedisFailed",
    "RedisLookup",
    "RedisSink",
    "RedisStreamSource",
    "UnwritableRow",
]

del _redis
