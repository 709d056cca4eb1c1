"""A nightly report: sums a day's sales, once, whoever and how many start it.

    DATABASE_URL=postgresql://... python nightly_report.py 2026-11-30

Exit code 0: written. 3: somebody else is at it. 4: this run came too late, and nothing of it was kept.
"""

from __future__ import annotations

import os
import sys
from decimal import Decimal

from sqlalchemy import create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pyfence
from pyfence.sqlalchemy import fenced, protection


class Base(DeclarativeBase):
    """The models."""


class Report(Base):
    """One row a day, guarded: only the holder of report:DAY writes it."""

    __tablename__ = "report"
    __table_args__ = {"info": protection("report:{day}", token_column="token")}  # noqa: S106
    day: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[Decimal]


def main(day: str) -> int:
    """Computes for as long as it takes, then writes."""
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    with pyfence.Fence(engine) as fence:
        try:
            with fence.lease(pyfence.resource("report:{day}", day=day), ttl=30, owner="nightly-report") as lease:
                with Session(engine) as session:
                    total = session.scalar(
                        text("select coalesce(sum(amount), 0) from sale where day = :day"), {"day": day}
                    )
                with Session(engine) as session, fenced(session, lease):
                    report = session.scalar(select(Report).where(Report.day == day)) or Report(day=day)
                    report.total = total
                    session.add(report)
                    session.commit()
        except pyfence.LeaseHeld as held:
            print(f"somebody else is at it: {held.owner}", file=sys.stderr)
            return 3
        except (pyfence.StaleToken, pyfence.LeaseExpired, pyfence.LeaseLost) as late:
            print(f"too late, nothing was written: {late}", file=sys.stderr)
            return 4
    print(f"{day}: {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
