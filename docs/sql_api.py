"""Writes docs/sql-api.md from the catalog: signatures, comments, and who may. `python3 dev.py sql-api` runs it.

A test compares the page with the catalog, so it cannot drift.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from pyfence import _server, migrate

PAGE = Path(__file__).parent / "sql-api.md"
#: What a reader looks for together. A function that is in none comes under "Other functions".
GROUPS = {
    "Leases": ("acquire", "renew", "renew_all", "release", "revoke", "evict"),
    "Writing": ("present", "present_all", "enter", "fenced_update", "resource_name", "resource_for"),
    "Tables": ("protect", "set_mode", "exempt", "unexempt", "unprotect", "audit", "repair"),
}
KINDS = ("client", "admin", "monitor")
_FUNCTIONS = """\
select p.proname::text, pg_catalog.pg_get_function_arguments(p.oid), pg_catalog.pg_get_function_result(p.oid),
  pg_catalog.obj_description(p.oid, 'pg_proc'), p.prosecdef
from pg_catalog.pg_proc p
where p.pronamespace = 'fence'::pg_catalog.regnamespace and p.proname !~ '^_'
order by p.proname, 2"""
_VIEWS = """\
select c.relname::text, pg_catalog.obj_description(c.oid, 'pg_class'),
  (select pg_catalog.array_agg(a.attname || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod) order by a.attnum)
   from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
from pg_catalog.pg_class c
where c.relnamespace = 'fence'::pg_catalog.regnamespace and c.relkind = 'v' and c.relname !~ '^_'
order by c.relname"""
_GRANTS = "select fence._role_grants(current_user::pg_catalog.regrole, %s)"
_HEAD = """\
# The SQL functions and views

Everything in schema `fence` whose name does not begin with `_`; the rest is private. This page is written from the
catalog of a database with pyfence: `\\df+ fence.*` and `\\dv+ fence.*` show the same. Codes are explained in
[errors](errors.md), kinds of role in [permissions](dba/permissions.md). A parameter with a default may be left out;
name the others where there are many: `fence.protect('report', 'report:{id}', p_mode => 'observe')`.
"""


def page(connection: psycopg.Connection[Any]) -> str:
    """The page for a database that has pyfence; `connection` is of the schema's owner."""
    grants = {kind: " ".join(row[0] for row in connection.execute(_GRANTS, (kind,))) + " " for kind in KINDS}
    functions = connection.execute(_FUNCTIONS).fetchall()
    grouped = {name for names in GROUPS.values() for name in names}
    others = tuple(dict.fromkeys(row[0] for row in functions if row[0] not in grouped))
    text = _HEAD
    for title, names in {**GROUPS, "Administration": others}.items():
        text += f"\n## {title}\n"
        for name in names:
            for row in functions:
                if row[0] == name:
                    text += _function(*row, who=[kind for kind in KINDS if f"fence.{name}(" in grants[kind]])
    text += "\n## Views\n\nFor roles of the kinds monitor and admin.\n"
    for name, comment, columns in connection.execute(_VIEWS).fetchall():
        lines = "\n".join(f"  {column}" for column in columns)
        text += f"\n### fence.{name}\n\n{comment}\n\n```text\n{lines}\n```\n"
    return text


def _function(name: str, arguments: str, result: str, comment: str, definer: bool, *, who: list[str]) -> str:
    inside = "".join(f"\n  {argument}," for argument in _split(arguments)).rstrip(",")
    returned = (
        result if len(result) < 100 else "TABLE (" + "".join(f"\n  {c}," for c in _split(result[6:-1])).rstrip(",")
    )
    returned += "" if len(result) < 100 else "\n)"
    call = f"fence.{name}({inside}{chr(10) if inside else ''}) returns {returned}"
    rights = f"For roles of the kinds {', '.join(who)}." if who else "For the owner of the schema."
    runs = "" if definer else " Runs with its caller's rights."
    return f"\n### fence.{name}\n\n{comment}\n\n```text\n{call}\n```\n\n{rights}{runs}\n"


def _split(arguments: str) -> list[str]:
    """Cut at the commas between arguments: none stands inside a type here, and a default holds none."""
    return [part for part in arguments.split(", ") if part]


def main() -> None:
    """Make the page, on a server that lives as long."""
    with _server.Server() as server:
        migrate.up(server.url())
        with psycopg.connect(server.url()) as connection:
            PAGE.write_text(page(connection), encoding="utf-8")


if __name__ == "__main__":
    main()
