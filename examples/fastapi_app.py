"""A web service whose handler writes under a lease.

    DATABASE_URL=postgresql://... uvicorn fastapi_app:app

`POST /reports/2026-11-30` sums that day's sales. 409: somebody else is at it, or this request came too late and wrote
nothing; the body says which, with the code.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

import pyfence
from pyfence.sqlalchemy import fenced

url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")
engine = create_async_engine(url)
session_of = async_sessionmaker(engine)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client for the life of the process."""
    async with pyfence.AsyncFence(engine) as app.state.fence:
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)

UPSERT = text(
    "insert into report (day, total) values (:day, :total) on conflict (day) do update set total = excluded.total"
)


@app.exception_handler(pyfence.LeaseHeld)
@app.exception_handler(pyfence.StaleToken)
@app.exception_handler(pyfence.LeaseExpired)
@app.exception_handler(pyfence.LeaseLost)
async def conflict(request: Request, exc: pyfence.FenceError) -> JSONResponse:
    """Somebody else's turn."""
    return JSONResponse({"error": type(exc).__name__, "code": exc.sqlstate, "hint": exc.hint}, status_code=409)


@app.post("/reports/{day}")
async def write_report(day: str) -> dict[str, object]:
    """Computes for as long as it takes, then writes."""
    fence: pyfence.AsyncFence = app.state.fence
    async with fence.lease(pyfence.resource("report:{day}", day=day), ttl=30, owner="web") as lease:
        async with AsyncSession(engine) as session:
            query = text("select coalesce(sum(amount), 0) from sale where day = cast(:day as date)")
            total = (await session.execute(query, {"day": day})).scalar_one()
        async with session_of() as session, fenced(session, lease):
            await session.execute(UPSERT, {"day": day, "total": total})
            await session.commit()
    return {"day": day, "total": str(total), "token": lease.token}
