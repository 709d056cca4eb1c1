"""A holder that stood still, and a lease table that did: nobody writes under a lease that has gone to somebody else."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from guards.scene import acquire, ask, expire, present
from harness import Database, wait_until

import pyfence

_HOLDER = """
import signal, sys
import psycopg

conn = psycopg.connect(sys.argv[1], autocommit=True)
((token, secret),) = conn.execute("select token, secret from fence.acquire('report:1', '1 h')").fetchall()
conn.execute("select body from public.report where id = 1")
print("computes", flush=True)
sys.stdin.readline()
copy = "copy public.report from stdin"
for statement in (
    "update public.report set body = 'stale' where id = 1",
    "insert into public.report values (1, 'stale') on conflict (id) do update set body = 'stale'",
    "delete from public.report where id = 1",
    copy,
):
    for presents in (True, False):
        try:
            with conn.transaction():
                if presents:
                    conn.execute("select fence.present('report:1', %s, %s)", (token, secret))
                if statement == copy:
                    with conn.cursor().copy(statement) as rows:
                        rows.write_row((1, "stale"))
                else:
                    conn.execute(statement)
        except psycopg.Error as error:
            print(error.sqlstate)
        else:
            print("written")
"""


@pytest.mark.parametrize("written", [False, True], ids=["granted", "written"])
def test_a_process_frozen_past_its_lease_writes_nothing(db: Database, report: str, written: bool) -> None:
    """Whether the next holder has written already or not."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, db.url("app")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "computes\n"
        process.send_signal(signal.SIGSTOP)
        expire(db, "report:1")
        newer = acquire(db, "report:1")
        if written:
            connection = db.connect("app")
            present(connection, newer)
            connection.execute("update public.report set body = 'new' where id = 1")
            connection.commit()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
        codes = process.stdout.read().split()
    assert codes == ["LF001", "LF004"] * 4
    assert db.execute("select body from public.report where id = 1") == [("new" if written else "old",)]


def test_a_lease_table_that_is_locked_for_longer_than_the_ttl(db: Database, report: str) -> None:
    """Holders renew first or have lost; no waiter's token stands beside a write accepted under the older one."""
    names = [f"report:{number}" for number in range(1, 6)]
    keeper = db.connect("fence_owner")
    with ExitStack() as block:
        fence = block.enter_context(pyfence.Fence(db.url("app")))
        other = block.enter_context(pyfence.Fence(db.url("app")))
        holding = [fence.lease(name, ttl=1.0) for name in names]
        held = [lease.__enter__() for lease in holding]
        waiting = [db.in_thread(other.acquire, name, ttl=60, wait=30) for name in names]
        places = "select count(*) from fence._waiter"
        wait_until(lambda: db.execute(places, user="fence_owner") == [(5,)], "all of them wait")
        keeper.execute("lock table fence._lease in access exclusive mode")
        wait_until(lambda: all(lease.lost.is_set() for lease in held), "the holders know that they have lost")
        assert not [waiter for waiter in waiting if waiter.done()]
        keeper.rollback()
        newer = [waiter.result(30) for waiter in waiting]
        for old, new in zip(held, newer, strict=True):
            assert new.token > old.token
            with pytest.raises(pyfence.StaleToken), db.connect("app") as connection:
                pyfence.present(connection, old.claim)
        for lease in holding:
            with pytest.raises(pyfence.LeaseLost):
                lease.__exit__(None, None, None)
        assert {ask(db, name).reason for name in names} == {"held"}
