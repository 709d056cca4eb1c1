"""One protected model, in the forms in which applications reach it."""

from __future__ import annotations

import sqlalchemy as sa
from harness import Database
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The application's metadata."""


class Report(Base):
    """Each row a resource report:{id}. `version` is SQLAlchemy's own optimistic lock."""

    __tablename__ = "report"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    serial: Mapped[int] = mapped_column(sa.Identity())
    version: Mapped[int] = mapped_column(default=1)
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


def engine_over(db: Database, user: str = "app", **options: object) -> sa.Engine:
    return sa.create_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(db.url(user)), **options)


def async_engine_over(db: Database, **options: object) -> AsyncEngine:
    return create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(db.url("app")), **options)


def bodies(db: Database) -> dict[int, str]:
    return dict(db.execute("select id, body from public.report order by id", user="outsider"))
