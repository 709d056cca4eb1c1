"""Random load, judged exactly: nothing stale gets in, and the judge would have noticed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest
from stress import ablation
from stress.conftest import LONG, Stress

#: What the short run has to have done, however slow the machine is.
ENOUGH = 100  # rows written, and leases granted


def passes(stress: Stress, seconds: float, record: Callable[[str, object], None], *, least: int) -> None:
    """Run for so long, and longer where too little was done by then; nothing may be found."""
    seed = random.SystemRandom().randrange(1 << 32)
    checker, end = stress.checker, time.monotonic() + seconds

    def enough() -> bool:
        done = min(checker.generations, sum(checker.writes.values()))
        return bool(checker.violations) or (done >= least and time.monotonic() > end)

    workload = stress.run(seed, seconds + 60, enough=enough)
    summary = {"seed": seed, **checker.summary(), "errors": dict(workload.tally.errors.most_common())}
    record("stress", summary)
    print(json.dumps(summary))
    for violation in checker.violations[:10]:
        print(violation, stress.trace(violation))
    assert not checker.violations, summary
    assert not workload.tally.surprises, (summary, workload.tally.surprises[:5])
    assert min(summary["writes"], summary["generations"]) >= least, summary


def test_no_stale_write_gets_in(stress: Stress, record_property: Callable[[str, object], None]) -> None:
    passes(stress, 1.5, record_property, least=ENOUGH)


@pytest.mark.stress
@pytest.mark.timeout(LONG * 2 + 300)
def test_no_stale_write_gets_in_for_long(stress: Stress, record_property: Callable[[str, object], None]) -> None:
    passes(stress, LONG, record_property, least=10 * ENOUGH)


@pytest.mark.parametrize(
    ("name", "kind", "many"),
    [
        ("no share", "stale", 20),
        ("no takeover lock", "stale", 20),
        ("no update lock", "usurped", 1),
        pytest.param("no covering share", "stale", 1, marks=pytest.mark.stress),
    ],
)
def test_the_checker_notices_a_missing_lock(stress: Stress, name: str, kind: str, many: int) -> None:
    """Without a part of the lock, soon. Of a takeover's two locks either is enough for G2: without both, stale ones."""
    ablation.ABLATIONS[name](stress.db)
    stress.run(1, 60, enough=lambda: stress.checker.count(kind) >= many)
    print(json.dumps(stress.checker.summary()))
    assert stress.checker.count(kind) >= many, stress.checker.summary()
