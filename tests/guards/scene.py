"""What the tests of the SQL core share.

Leases as plain values, what happens to them behind a writer's back, and the ways in which a table names its resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness import Connection, Database

#: What every refusal has to say beside its code.
FIELDS = ("message_primary", "message_detail", "message_hint", "schema_name", "table_name", "constraint_name")


@dataclass(frozen=True)
class Lease:
    """A granted lease; `parameters` is what present, renew and release ask for."""

    resource: str
    token: int
    secret: str = field(repr=False)

    @property
    def parameters(self) -> tuple[str, int, str]:
        return self.resource, self.token, self.secret


def ask(database: Database | Connection, resource: str, ttl: str = "30 s") -> Any:
    """One call of acquire, as the application: its row."""
    statement = "select * from fence.acquire(%s, %s::interval, 'tester')"
    if isinstance(database, Database):
        ((*row,),) = database.execute(statement, (resource, ttl), user="app")
    else:
        ((*row,),) = database.execute(statement, (resource, ttl)).fetchall()
    names = ("granted", "resource", "token", "secret", "owner", "expires_at", "reason", "retry_in")
    return type("Answer", (), dict(zip(names, row, strict=True)))


def acquire(database: Database | Connection, resource: str, ttl: str = "30 s") -> Lease:
    """A lease that is granted at once, or the test fails."""
    answer = ask(database, resource, ttl)
    if not answer.granted:
        pytest.fail(f"no lease on {resource}: {answer.reason}")
    return Lease(answer.resource, answer.token, answer.secret)


def expire(db: Database, resource: str) -> None:
    """Let a lease's time have run out, without waiting for it."""
    db.execute(
        "update fence._lease set expires_at = clock_timestamp() - interval '1 ms' where resource = %s",
        (resource,),
        user="fence_owner",
    )


def supersede(db: Database, lease: Lease) -> Lease:
    """The lease's successor: it expires and somebody else gets it."""
    expire(db, lease.resource)
    return acquire(db, lease.resource)


def look_and_wait(db: Database, resource: str) -> None:
    """Whoever asks whether that lease is live waits for lock 1 then, if told so."""
    db.execute("alter function fence._is_live rename to _is_live_now", user="fence_owner")
    db.execute(
        "create function fence._is_live(p_lease fence._lease, p_authority_lineage bigint) returns boolean "
        "language plpgsql volatile as $$ declare v_live boolean := fence._is_live_now(p_lease, p_authority_lineage); "
        f"begin if p_lease.resource = '{resource}' and current_setting('pyfence_test.wait', true) = 'on' then "
        "perform pg_catalog.pg_advisory_lock(1); perform pg_catalog.pg_advisory_unlock(1); end if; "
        "return v_live; end $$",
        user="fence_owner",
    )


def present(connection: Connection, *leases: Lease) -> None:
    for lease in leases:
        connection.execute("select fence.present(%s, %s, %s)", lease.parameters)


def renew(database: Database | Connection, lease: Lease) -> None:
    statement = "select fence.renew(%s, %s, %s)"
    if isinstance(database, Database):
        database.execute(statement, lease.parameters, user="app")
    else:
        database.execute(statement, lease.parameters)


def release(db: Database, lease: Lease) -> bool:
    return bool(db.execute("select fence.release(%s, %s, %s)", lease.parameters, user="app")[0][0])


def revoke(db: Database, resource: str) -> bool:
    return bool(db.execute("select fence.revoke(%s, 'test')", (resource,))[0][0])


def claims(connection: Connection, *leases: Lease) -> str:
    """The setting fence.claims as present would leave it in this transaction, right or wrong; made by hand."""
    ((xact,),) = connection.execute("select pg_current_xact_id()::text").fetchall()
    items = [f"\n{lease.resource.encode().hex()} {lease.token} {lease.secret} -\n" for lease in leases]
    return f"{xact}{''.join(items)}"


def put_claims(connection: Connection, text: str, *, local: bool = True) -> None:
    """Any role may set it: it proves nothing."""
    connection.execute("select set_config('fence.claims', %s, %s)", (text, local))


def forge(connection: Connection, *leases: Lease) -> None:
    """Claims in the right form and of this transaction, for leases that present would refuse."""
    put_claims(connection, claims(connection, *leases))


def startup(*leases: Lease, sequence: int | None = None) -> str:
    """The start-up option that carries claims."""
    end = "" if sequence is None else f":{sequence}"
    return "-c fence.claim=" + ",".join(f"{x.resource.encode().hex()}:{x.token}:{x.secret}{end}" for x in leases)


@dataclass(frozen=True)
class Scope:
    """A way of naming resources, over public.t."""

    template: str
    #: The resources of rows 1 and 2; the new row 4 belongs to the second's tenant.
    mine: tuple[str, ...]
    #: A resource that covers none of them, although it looks like one.
    other: str


SCOPES = {
    "table": Scope("nightly", ("nightly",), "nightly2"),
    "row": Scope("row:{id}", ("row:1", "row:2", "row:4"), "row:3"),
    "composite": Scope("tenant:{tenant}:{region}", ("tenant:a:eu",), "tenant:a:us"),
}


def make_tables(db: Database) -> None:
    """public.t with three rows of two tenants, and unprotected tables, a view, a rule and a trigger that lead to it."""
    db.execute("create table public.parent (id int primary key)")
    db.execute("insert into public.parent values (1), (2), (3)")
    db.execute(
        """
        create table public.t (
          id int primary key,
          tenant text,
          region varchar(20),
          body text default 'old',
          parent int constraint t_parent_fkey references public.parent on delete cascade on update cascade
        )
        """
    )
    db.execute("insert into public.t values (1,'a','eu','old',1), (2,'a','eu','old',2), (3,'b','us','old',3)")
    db.execute("create table public.log (id int)")


def contents(db: Database, *tables: str) -> list[Any]:
    """Every row of the tables."""
    return [
        row
        for table in tables or ("public.t", "public.parent", "public.log")
        for row in db.execute(f"select * from {table} as r order by r::text", user="app_owner")
    ]


def protect(db: Database, table: str, resource: str, **options: Any) -> None:
    """fence.protect as the table's owner, with further parameters by name."""
    more = "".join(f", {name} => %s" for name in options)
    db.execute(f"select fence.protect(%s, %s{more})", (table, resource, *options.values()))


def check_refusal(diag: Any, *, table: str = "", schema: str = "public", secrets: Sequence[str] = ()) -> None:
    """Every field that clients read is filled, the right ones with the right names, and no secret is in any."""
    texts = {name: getattr(diag, name) for name in FIELDS}
    texts["table_name"] = texts["table_name"] or ""
    if not all(texts[name] for name in FIELDS if name != "table_name"):
        pytest.fail(f"a field is empty: {texts}")
    if texts["constraint_name"] != diag.sqlstate:
        pytest.fail(f"the constraint does not repeat the code: {texts}")
    wanted = {"schema_name": schema if table else "fence", "table_name": table}
    if {name: texts[name] for name in wanted} != wanted:
        pytest.fail(f"wrong names: {texts}, expected {wanted}")
    for secret in secrets:
        if any(secret in text for text in [*texts.values(), diag.context or "", diag.internal_query or ""]):
            pytest.fail(f"a secret in {texts} {diag.context}")


def by_hand(db: Database, function: str, *arguments: str) -> str:
    """A call of a private function as SQL, with null for whatever further parameters it has."""
    ((count,),) = db.execute(
        "select pronargs from pg_proc where pronamespace = 'fence'::regnamespace and proname = %s", (function,)
    )
    return f"select fence.{function}({', '.join([*arguments, *['null'] * (count - len(arguments))])})"
