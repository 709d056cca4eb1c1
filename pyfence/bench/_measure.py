"""What something costs: wall time, and the processor time of the backend that did it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import psycopg

from pyfence.bench import _sql

Measure = Literal["cpu", "wall"]


@dataclass(frozen=True)
class Cost:
    """What one run took, in seconds. `cpu` is None where it cannot be read."""

    wall: float
    cpu: float | None

    def of(self, measure: Measure) -> float | None:
        """One of the two."""
        return self.cpu if measure == "cpu" else self.wall


class Meter:
    """Measures what the backend of one connection does."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._schedstat = Path(f"/proc/{connection.info.backend_pid}/schedstat")
        self.reads_cpu = self._is_the_backends(connection)

    def cost(self, run: Callable[[], object]) -> Cost:
        """Run something on the connection, to its end, and say what it cost."""
        cpu_before, before = self._cpu(), time.perf_counter()
        run()
        wall = time.perf_counter() - before
        if not self.reads_cpu:
            return Cost(wall, None)
        time.sleep(0.002)  # the backend is charged for its last moments when it goes to sleep
        return Cost(wall, (self._cpu() - cpu_before) / 1e9)

    def _cpu(self) -> int:
        """Nanoseconds on a processor since the process began (its first field; no privileges needed)."""
        return int(self._schedstat.read_text().split()[0]) if self.reads_cpu else 0

    def _is_the_backends(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the process of that number here is our backend: with a remote server it is anybody's, or nobody's."""
        self.reads_cpu = True
        try:
            if not self._schedstat.with_name("comm").read_text().startswith("postgres"):
                return False
            before = self._cpu()
            connection.execute(_sql.BURN).fetchall()
            time.sleep(0.002)
            return self._cpu() - before > 2_000_000
        except (OSError, ValueError, IndexError):
            return False


@dataclass(frozen=True)
class Variant:
    """One way of doing the work. `target`: the ratio to the first variant that it is to stay below."""

    name: str
    run: Callable[[int], object]
    measure: Measure = "cpu"
    target: float | None = None


@dataclass(frozen=True)
class Group:
    """Variants of the same work; the first is the unguarded one.

    `operations`: how many rows or transactions one run is, `each` what they are called; `tidy` is called after every
    round, unmeasured.
    """

    name: str
    each: str
    operations: int
    rounds: int
    variants: Sequence[Variant]
    tidy: Callable[[], object]


@dataclass(frozen=True)
class Result:
    """A variant against the unguarded one. Times: microseconds for each row or transaction, medians over `rounds`."""

    group: str
    variant: str
    each: str
    measure: Measure
    unguarded: float
    guarded: float
    ratio: float
    ratio_low: float
    ratio_high: float
    target: float | None
    wall_ratio: float
    rounds: int

    @property
    def within(self) -> bool | None:
        """Whether the target is reached; None without one."""
        return None if self.target is None else self.ratio <= self.target


def measured(group: Group, meter: Meter) -> list[Result]:
    """Run all variants in turn, as many rounds as the group has, after one round that does not count.

    Each round begins with another variant, so that none is always the first after the tidying up. The ratio is the
    median of the rounds' own ratios: what slows a whole round down slows both sides.
    """
    costs: list[list[Cost]] = [[] for _ in group.variants]
    for number in range(group.rounds + 1):
        count = len(group.variants)
        for place in range(count):
            which = (number + place) % count
            cost = meter.cost(lambda which=which, number=number: group.variants[which].run(number))  # type: ignore[misc]
            if number > 0:
                costs[which].append(cost)
        group.tidy()
    return [_result(group, variant, costs[0], costs[place]) for place, variant in enumerate(group.variants) if place]


def _result(group: Group, variant: Variant, plain: Sequence[Cost], guarded: Sequence[Cost]) -> Result:
    measure: Measure = variant.measure if plain[0].cpu is not None else "wall"

    def micros(costs: Sequence[Cost]) -> float:
        return median(cost.of(measure) or 0.0 for cost in costs) / group.operations * 1e6

    ratios = sorted(_ratio(of, over, measure) for of, over in zip(guarded, plain, strict=True))
    quarter = len(ratios) // 4
    return Result(
        group=group.name,
        variant=variant.name,
        each=group.each,
        measure=measure,
        unguarded=round(micros(plain), 3),
        guarded=round(micros(guarded), 3),
        ratio=round(median(ratios), 3),
        ratio_low=round(ratios[quarter], 3),
        ratio_high=round(ratios[-1 - quarter], 3),
        target=variant.target if measure == variant.measure else None,
        wall_ratio=round(median(_ratio(of, over, "wall") for of, over in zip(guarded, plain, strict=True)), 3),
        rounds=group.rounds,
    )


def _ratio(of: Cost, over: Cost, measure: Measure) -> float:
    return (of.of(measure) or 0.0) / max(over.of(measure) or 0.0, 1e-9)
