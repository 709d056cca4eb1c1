"""A publisher and a subscriber: two databases of one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from harness import Database, wait_until


def rows(db: Database, table: str) -> list[Any]:
    return db.execute(f"select * from {table} r order by r::text", user="postgres")


def same(publisher: Database, subscriber: Database, *tables: str) -> None:
    """Return when the subscriber has the publisher's rows."""

    def caught_up() -> bool:
        return all(rows(publisher, table) == rows(subscriber, table) for table in tables)

    def state() -> str:
        log = subscriber.cluster.server.base_dir
        return f"{[(table, rows(publisher, table), rows(subscriber, table)) for table in tables]} see {log}"

    wait_until(caught_up, "the subscriber has caught up", state=state, deadline=60)


@contextmanager
def subscription(publisher: Database, subscriber: Database, publication: str, *, options: str = "") -> Iterator[str]:
    """`publication` after CREATE PUBLICATION; the slot is made beforehand, as it must be within one cluster."""
    name = f"s_{subscriber.name}"
    publisher.execute(f"create publication p {publication}", user="postgres")
    publisher.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,), user="postgres")
    info = publisher.url("postgres")
    subscriber.execute(
        f"create subscription {name} connection '{info}' publication p "
        f"with (create_slot = false, slot_name = '{name}'{options})",
        user="postgres",
    )
    states = "select 1 from pg_subscription_rel where srsubstate <> 'r'"
    try:
        wait_until(lambda: not subscriber.execute(states, user="postgres"), "every table is copied", deadline=60)
        yield name
    finally:
        subscriber.execute(f"alter subscription {name} disable", user="postgres")
        subscriber.execute(f"alter subscription {name} set (slot_name = none)", user="postgres")
        subscriber.execute(f"drop subscription {name}", user="postgres")
        drop_slots(publisher)


def drop_slots(publisher: Database) -> None:
    """Every slot of the publisher's database; the walsenders end first."""

    def gone() -> bool:
        slots = "select slot_name, active_pid from pg_replication_slots where database = %s"
        for slot, pid in publisher.execute(slots, (publisher.name,), user="postgres"):
            try:
                if pid is not None:
                    publisher.execute("select pg_terminate_backend(%s)", (pid,), user="postgres")
                publisher.execute("select pg_drop_replication_slot(%s)", (slot,), user="postgres")
            except psycopg.Error:
                return False
        return not publisher.execute(slots, (publisher.name,), user="postgres")

    wait_until(gone, "the slots are gone")
