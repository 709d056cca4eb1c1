"""A database in use at the newest revision: what an upgrade finds.

`python tests/migrations/populated.py NNNN` keeps a dump of it in `dumps/NNNN.sql`. That is done when a revision is
released, with the oldest PostgreSQL that is supported, so that every other can read it; from then on each later
revision is tried on it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import SUPERUSER, Cluster, Database, Postgresql

DUMPS = Path(__file__).with_name("dumps")

#: The protected tables, and a write to each that needs a claim on the resource beside it.
WRITES = {
    "app.account": ("update app.account set body = 'w'", "account:1"),
    "app.nightly": ("insert into app.nightly values (99, 'w') on conflict (id) do update set body = 'w'", "nightly"),
    "app.payment": ("update app.payment set body = 'w' where id = 1", "payment:1"),
    "app.counted": ("update app.counted set body = 'w' where id = 1", "counted:1"),
    '"Odd, schema"."T"': ("""update "Odd, schema"."T" set body = 'w'""", "odd:x"),
}

TABLES = """
create schema app authorization app_owner;
create schema "Odd, schema" authorization app_owner;
grant usage on schema app, "Odd, schema" to public;
set role app_owner;
create table app.account (id int primary key, body text);
create table app.nightly (id int primary key, body text);
create table app.payment (id int, month int, body text) partition by list (month);
create table app.payment_1 partition of app.payment for values in (1);
create table app.payment_2 partition of app.payment for values in (2);
create table app.counted (id int primary key, body text, token bigint);
create table app.observed (id int primary key, body text);
create table "Odd, schema"."T" ("Key's" text primary key, body text);
insert into app.account values (1, 'old');
insert into app.nightly values (1, 'old');
insert into app.payment values (1, 1, 'old'), (2, 2, 'old');
insert into app.counted values (1, 'old', 0);
insert into app.observed values (1, 'old');
insert into "Odd, schema"."T" values ('x', 'old');
grant select, insert, update, delete, truncate on all tables in schema app, "Odd, schema" to app, outsider;
select fence.protect('app.account', 'account:{id}', p_covering => 'all accounts');
select fence.protect('app.nightly', 'nightly', p_expiry => 'until_superseded');
select fence.protect('app.payment', 'payment:{id}', p_inserts => 'allow');
select fence.protect('app.counted', 'counted:{id}', p_writes => 'sequenced', p_token_column => 'token');
select fence.protect('app.observed', '{@schema}.{@table}:{id}', p_mode => 'observe');
select fence.protect('"Odd, schema"."T"', 'odd:{Key''s}', p_uncatchable => true);
select fence.exempt('app.account', 'monitor', now() + interval '100 years', 'a dump');
select fence.allow('monitor', 'none:*', 3);
select fence.set_option('need_sync', 'off', 'a dump');
select fence.acquire('account:1', '1 hour');
select fence.acquire('held by nobody', '1 s');
select fence.revoke('held by nobody', 'a dump');
update app.observed set body = 'seen';
reset role;
"""


def populate(db: Database) -> None:
    """Tables, guards of every kind, leases, history, violations, exemptions, rules."""
    with db.connect(SUPERUSER, autocommit=True) as connection:
        connection.execute(TABLES.encode())


def dump(db: Database) -> str:
    """The database as pg_dump writes it."""
    program = db.cluster.server.programs.path("pg_dump")
    return subprocess.run(
        [program, "-d", db.url(SUPERUSER)], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def main() -> None:
    """Keep a dump of the newest revision."""
    (revision,) = sys.argv[1:]
    cluster = Cluster(Postgresql.launch())
    try:
        db = Database(cluster)
        populate(db)
        DUMPS.mkdir(exist_ok=True)
        (DUMPS / f"{revision}.sql").write_text(dump(db), encoding="utf-8")
        db.close()
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
