"""One table that counts its writes, in every way in which a table names its resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from guards.scene import Lease, acquire, protect
from harness import Connection, Database

TABLE = "public.t"
UPDATE = "update public.t set body = 'new' where id = 1"
AGAIN = "update public.t set body = body || '!' where id = 1"
NO_ROW = "update public.t set body = 'new' where id = 99"


@dataclass(frozen=True)
class Kind:
    """A table, its template, and the resource of row 1."""

    template: str
    resource: str
    partitioned: bool = False


KINDS = {
    "table": Kind("nightly", "nightly"),
    "row": Kind("row:{id}", "row:1"),
    "composite": Kind("tenant:{tenant}:{region}", "tenant:a:eu"),
    "partitioned": Kind("row:{id}", "row:1", partitioned=True),
    "partitioned table": Kind("nightly", "nightly", partitioned=True),
}


@dataclass(frozen=True)
class Scene:
    """A protected public.t with rows 1 ('a', 'eu') and 2 ('b', 'us'), and a lease on the resource of row 1."""

    db: Database
    kind: Kind
    lease: Lease

    def protect(self, writes: str | None = None, **options: Any) -> None:
        protect(self.db, TABLE, self.kind.template, p_writes=writes, **options)

    def transaction(self, sequence: int | None = None, isolation: psycopg.IsolationLevel | None = None) -> Connection:
        """A transaction of the application's with the lease presented."""
        return begin(self.db, self.lease, sequence, isolation)

    def write(self, sequence: int | None = None, statement: str = UPDATE) -> None:
        """One write in a transaction of its own."""
        connection = self.transaction(sequence)
        connection.execute(statement)
        connection.commit()
        connection.close()

    def body(self) -> str:
        ((body,),) = self.db.execute("select body from public.t where id = 1")
        return str(body)

    def accepted(self) -> list[tuple[Any, ...]]:
        """What is remembered: resource, token and sequence."""
        return self.db.execute("select resource, token, sequence from fence._accepted", user="fence_owner")


def make(db: Database, kind: Kind, **options: Any) -> Scene:
    """The table as its owner makes and protects it."""
    db.execute(
        "create table public.t (id int not null, tenant text not null, region varchar(9), body text, token bigint, "
        "primary key (id, tenant))" + (" partition by list (tenant)" if kind.partitioned else "")
    )
    if kind.partitioned:
        db.execute("create table public.t_a partition of public.t for values in ('a')")
        db.execute("create table public.t_b partition of public.t for values in ('b') partition by list (id)")
        db.execute("create table public.t_b_all partition of public.t_b default")
    db.execute("insert into public.t values (1, 'a', 'eu', 'old'), (2, 'b', 'us', 'old')")
    protect(db, TABLE, kind.template, **options)
    return Scene(db, kind, acquire(db, kind.resource, "1 h"))


def begin(
    db: Database, lease: Lease, sequence: int | None = None, isolation: psycopg.IsolationLevel | None = None
) -> Connection:
    connection = db.connect("app", isolation=isolation)
    present(connection, lease, sequence)
    return connection


def present(connection: Connection, lease: Lease, sequence: int | None = None) -> None:
    connection.execute("select fence.present(%s, %s, %s, %s)", (*lease.parameters, sequence))


def code_of(call: Callable[[], Any]) -> str | None:
    """The SQLSTATE that a call is refused with; None: it is accepted."""
    try:
        call()
    except psycopg.Error as error:
        return str(error.sqlstate)
    return None
