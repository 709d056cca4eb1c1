"""Each reason has words of its own, also where several share a code: who reads the message must not be led astray."""

from __future__ import annotations

import pytest
from guards.scene import acquire, protect
from harness import Database, sqlstate

#: Role, statement, code, and how the message begins.
REASONS = {
    "present, never granted": ("app", "select fence.present('no such', 5, 'x')", "LF006", "no lease on 'no such'"),
    "renew, never granted": ("app", "select fence.renew('no such', 5, 'x')", "LF006", "no lease on 'no such'"),
    "present, another secret": ("app", "select fence.present('held', {token}, 'x')", "LF006", "not the holder of"),
    "renew, a token to come": ("app", "select fence.renew('held', {token} + 1, 'x')", "LF006", "not the holder of"),
    "present, an older token": ("app", "select fence.present('held', {token} - 1, 'x')", "LF001", "stale token for"),
    "a lease deleted": ("fence_owner", "delete from fence._lease", "42501", "leases are never deleted"),
    "leases truncated": ("fence_owner", "truncate fence._lease", "42501", "leases are never deleted"),
    "a token set back": (
        "fence_owner",
        "update fence._lease set token = token - 1",
        "42501",
        "a token never goes down",
    ),
    "a stranger's update": ("postgres", "update fence._lease set owner = 'x'", "42501", "fence._lease is written by"),
    "a stranger's guard": ("postgres", "delete from fence._guard", "42501", "fence._guard is written by"),
    "no claim": ("app", "delete from public.t", "LF004", "write to public.t without a claim"),
    "truncate": ("app", "truncate public.t", "LF004", "write to public.t without a claim"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_message_is_of_the_reason(db: Database, reason: str) -> None:
    role, statement, code, words = REASONS[reason]
    db.execute("create table public.t (id int primary key)")
    db.execute("insert into public.t values (1)")
    protect(db, "public.t", "t:{id}")
    token = acquire(db, "held").token
    with sqlstate(code) as refused:
        db.execute(statement.format(token=token), user=role)
    assert refused.diag.message_primary.startswith(words), refused.diag.message_primary
