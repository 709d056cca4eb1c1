"""Takes one part of the lock away, in a scratch database, to see that the checker would notice."""

from __future__ import annotations

from collections.abc import Callable

from harness import Database


def no_key(db: Database) -> None:
    """The token is no key column any more: an older snapshot is not told of a takeover."""
    db.execute("alter table fence._lease drop constraint _lease_resource_token_key", user="fence_owner")


def no_share(db: Database) -> None:
    """The guard reads the lease without locking it."""
    edit(db, "fence._check_lease", "for key share of l", "")


def no_update_lock(db: Database) -> None:
    """acquire reads the lease without locking it. (Its update of a key column still waits for writers.)"""
    edit(db, "fence.acquire", "for update skip locked", "")


def no_takeover_lock(db: Database) -> None:
    """Neither does acquire lock the lease, nor is what it changes a key: nothing waits for an open writer."""
    no_update_lock(db)
    no_key(db)


def no_covering_share(db: Database) -> None:
    """Writers of single rows look at what covers them and lock nothing, neither in present nor after a statement."""
    edit(db, "fence._check_covering", "c.resource = p_covering for key share", "c.resource = p_covering")
    edit(db, "fence._hold_claim", "for key share of c", "")


ABLATIONS: dict[str, Callable[[Database], None]] = {
    "no key": no_key,
    "no share": no_share,
    "no update lock": no_update_lock,
    "no takeover lock": no_takeover_lock,
    "no covering share": no_covering_share,
}


def edit(db: Database, function: str, before: str, after: str) -> None:
    """Replace a function by itself, with one passage changed."""
    ((source,),) = db.execute(
        "select pg_get_functiondef(oid) from pg_proc where oid = %s::regproc", (function,), user="fence_owner"
    )
    assert source.count(before) == 1, f"{function} has {source.count(before)} times {before!r}"
    db.execute(source.replace(before, after).replace("%", "%%"), (), user="fence_owner")
