"""Random load, judged exactly: nothing stale gets in, and the judge would have noticed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from stress import ablation
from stress.conftest import LONG, Stress
from stress.workload import EXPECTED

SHORT = 2.5  # seconds


def _passes(stress: Stress, seconds: float, record: Callable[[str, object], None]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    workload = stress.run(seed, seconds, enough=lambda: bool(stress.checker.violations))
    summary = {"seed": seed, **stress.checker.summary(), "errors": dict(workload.tally.errors.most_common())}
    record("stress", summary)
    print(json.dumps(summary))
    assert not stress.checker.violations, (summary, stress.checker.violations[:10])
    assert not workload.tally.surprises, (summary, workload.tally.surprises[:5])
    assert summary["writes"] > 20 * seconds, summary
    assert summary["generations"] > 20 * seconds, summary
    assert set(summary["errors"]) <= set(EXPECTED)


def test_no_stale_write_gets_in(stress: Stress, record_property: Callable[[str, object], None]) -> None:
    _passes(stress, SHORT, record_property)


@pytest.mark.stress
@pytest.mark.timeout(LONG * 2 + 120)
def test_no_stale_write_gets_in_for_long(stress: Stress, record_property: Callable[[str, object], None]) -> None:
    _passes(stress, LONG, record_property)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("no key", "stale"), ("no share", "stale"), ("no takeover lock", "stale"), ("no update lock", "usurped")],
)
def test_the_checker_notices_a_missing_lock(stress: Stress, name: str, kind: str) -> None:
    """Without any one part of the lock, many."""
    many = 20
    ablation.ABLATIONS[name](stress.db)
    stress.run(1, 30, enough=lambda: stress.checker.count(kind) >= many)
    assert stress.checker.count(kind) >= many, stress.checker.summary()
