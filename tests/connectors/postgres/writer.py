"""A writer that inserts, updates, deletes, changes keys and truncates; some of its transactions are rolled back."""

import random
import threading
from collections.abc import Callable, Iterator
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


TOTAL = 2000 * 10
ACCOUNTS = """
create table orders (id int primary key, amount int);
insert into orders select i, 10 from generate_series(1, 2000) i;
create table copy (id int primary key, amount int);
create table log (n serial, kind text, old jsonb, new jsonb)
"""


def move_amounts(dsn: str, stop: threading.Event, seed: int) -> None:
    """Move amounts between rows, to other keys and to new rows; each transaction keeps the sum."""
    rng = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as connection:
        last = max((row[0] for row in connection.execute("select id from orders")), default=0)
        while not stop.wait(0.004):
            with connection.transaction():
                one, two = rng.sample(range(1, last), 2)
                moved = "with x as (delete from orders where id = %s returning amount) "
                last += 1
                if rng.random() < 0.5:
                    connection.execute(moved + "insert into orders select %s, amount from x", (one, last))
                connection.execute("update orders set id = %s where id = %s", (last + 1, two))
                last += 1
                connection.execute("update orders set amount = amount - 1 where id = %s", (last,))
                connection.execute("insert into orders select %s, 1 from orders where id = %s", (last + 1, last))
                last += 1


@contextmanager
def writing(dsn: str, seed: int, writer: Callable[[str, threading.Event, int], None] = write) -> Iterator[None]:
    """Write while the body runs, and end with a whole transaction."""
    stop = threading.Event()
    thread = threading.Thread(target=writer, args=(dsn, stop, seed), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
