"""A writer that inserts, updates, deletes, changes keys and truncates; some of its transactions are rolled back."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

TABLE = """
create table orders (id int primary key, state text, note text);
insert into orders select i, 'old', 'note ' || i from generate_series(1, 2000) i
"""


def write(dsn: str, stop: threading.Event, seed: int, truncates: float = 0.005) -> None:
    rng, last = random.Random(seed), 2000
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not stop.is_set():
            with connection.transaction():
                for _ in range(rng.randint(1, 8)):
                    last += 1
                    kind, key = rng.random(), rng.randint(1, last)
                    if kind < truncates:
                        connection.execute("truncate orders")
                    elif kind < 0.4:
                        connection.execute("insert into orders values (%s, 'new', %s)", (last, "x" * rng.randint(0, 9)))
                    elif kind < 0.6:
                        connection.execute("update orders set state = %s where id = %s", (str(kind), key))
                    elif kind < 0.8:
                        connection.execute("delete from orders where id = %s", (key,))
                    else:
                        connection.execute("update orders set id = %s where id = %s", (last, key))
                if rng.random() < 0.1:
                    raise psycopg.Rollback


@contextmanager
def writing(dsn: str, seed: int) -> Iterator[None]:
    """Write while the body runs, and end with a whole transaction."""
    stop = threading.Event()
    thread = threading.Thread(target=write, args=(dsn, stop, seed), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
