"""Each part of the token formula is needed: with one taken away, a scenario that passes elsewhere fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ha import test_crash, test_failover
from ha.nodes import Node, Stage

pytestmark = pytest.mark.ha


def edit(node: Node, function: str, before: str, after: str) -> None:
    ((source,),) = node.execute("select pg_get_functiondef(%s::regproc)", (function,), user="fence_owner")
    assert before in source
    node.execute(source.replace(before, after).encode(), user="fence_owner")


def no_timeline(node: Node) -> None:
    edit(node, "fence._current_timeline", "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())", "'00000001'")


def no_slow_clock(node: Node) -> None:
    edit(node, "fence._clock_term", "* 10000", "* 0")
    edit(node, "fence._clock_shortfall", "case when v_is_behind", "case when false")  # it would notice


def no_new_floor(node: Node) -> None:
    kept = "set lineage = a.lineage + 1"
    edit(node, "fence._begin_lineage", f"{kept}, floor = v_floor, floor_at = v_now", kept)
    edit(node, "fence._begin_lineage", "v_floor <= fence._highest_known()", "false")


def fast_clock(node: Node) -> None:
    """A clock at full speed: the old primary keeps up with the new one."""
    edit(node, "fence._clock_term", "* 10000", "* 1000000")


def snapshot(stage: Stage, primary: Node) -> None:
    test_crash.test_a_volume_snapshot_leaves_no_trace_and_lands_above_all_the_same(stage, primary, "running")


SCENARIOS: dict[str, tuple[Callable[[Node], None], Callable[[Stage, Node], None]]] = {
    "timeline": (no_timeline, test_failover.test_a_standby_promoted_without_the_tail),
    "slow clock": (no_slow_clock, snapshot),
    "new floor": (no_new_floor, test_failover.test_a_standby_promoted_without_the_tail),
    "slower than the clock": (fast_clock, test_failover.test_a_standby_promoted_without_the_tail),
}


@pytest.mark.parametrize("part", SCENARIOS)
def test_without_one_part_a_scenario_fails(stage: Stage, primary: Node, part: str) -> None:
    take_away, scenario = SCENARIOS[part]
    take_away(primary)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        scenario(stage, primary)
