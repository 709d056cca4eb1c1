"""The synchronous client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg

from pyfence import _telemetry, _writing
from pyfence._base import BaseFence, not_released, note_loss, raise_loss
from pyfence._connect import Source, source_of
from pyfence._request import TRANSIENT, Request
from pyfence.lease import Lease
from pyfence.types import Claim, Seconds

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool
    from sqlalchemy import Engine


class Fence(BaseFence[Source]):
    """Leases and fenced writes over one database.

    Over a URL it opens connections as it needs them; over a `psycopg_pool.ConnectionPool` or a SQLAlchemy `Engine`
    the application's transactions use that, and only acquire, renew and release have connections of their own beside
    it: at most four, plus one for renewals, so that a lease's heartbeat never waits for the work, and one that hears
    when a lease becomes free, while somebody waits. A lease holds no connection while it is idle. Usable from any
    number of threads, and in a child process, where it starts afresh.

    Args:
        source: a ``postgresql://`` (or ``postgresql+psycopg://``) URL or libpq conninfo, a pool, or an engine.
        timeout: how long one call to the database may take before it is given up. A waiting acquire makes many.

    Raises:
        BadArgument: (a ValueError) not a source, or a bad timeout.
    """

    def __init__(self, source: str | ConnectionPool[Any] | Engine, *, timeout: Seconds = 10.0) -> None:
        super().__init__(lambda: source_of(source), timeout=timeout)

    def acquire(self, resource: str, ttl: Seconds = 30, owner: str | None = None, wait: Seconds | None = 0) -> Lease:
        """Takes the lease on `resource`. It does not renew itself: see `lease`.

        Not re-entrant: while it is held, also by this very process, it is held.

        Args:
            resource: 1 to 1024 bytes; see `pyfence.resource` for names made from keys.
            ttl: how long it lasts unless renewed; above zero, at most a day.
            owner: a label for people; None: 'host:pid'.
            wait: how long to wait for it; 0: not at all, None: for ever. Those who wait get it in the order they came;
                who does not wait may come in between.

        Raises:
            LeaseHeld: somebody else has it, and the wait is over. Says who, until when, and when to ask again.
            BadArgument: (a ValueError) before anything is sent, or from the database.
            AuthorityQuarantined: an operator has to confirm the database's lineage first.
            OutcomeUnknown: no answer in time; at worst nobody has the lease until its ttl is over.
            psycopg.Error: the database could not be asked. A wait that has had one answer goes on asking instead.
        """
        self._after_fork()
        woken = threading.Event()
        request = Request(resource, ttl, owner, wait, wake=woken.set)
        with _telemetry.span("pyfence.acquire", request.resource), closing(request):
            while True:
                woken.clear()
                try:
                    state = request.ask(self._backend)
                except TRANSIENT as exc:
                    pause = request.pause_after(exc)
                else:
                    if state is not None:
                        return Lease(self._backend, state, forget=self._renewer.remove)
                    pause = request.pause()
                woken.wait(pause)
                if self._closing.is_set():
                    raise request.closed()

    @contextmanager
    def lease(
        self,
        resource: str,
        ttl: Seconds = 30,
        owner: str | None = None,
        wait: Seconds | None = 0,
        on_lost: Callable[[Lease], object] | None = None,
    ) -> Iterator[Lease]:
        """Holds the lease on `resource` for the length of a block: renews it by itself and gives it back at the end.

        Renewals run in a thread on a connection of their own, at a third of the ttl, and are tried again until the
        ttl has passed since the last success was sent. When the lease is lost, `Lease.lost` is set and `on_lost` is
        called, once, in a thread of its own; the block is not interrupted.

        Args:
            resource, ttl, owner, wait: as for `acquire`.
            on_lost: called with the lease. Its exceptions are logged.

        Raises:
            LeaseLost: at the end of a block that raised nothing itself, if the lease was lost meanwhile: the block
                did not hold it throughout. A block's own exception is the one raised, with a note of the loss.
            LeaseHeld and others: as `acquire`.
        """
        lease = self.acquire(resource, ttl, owner, wait)
        state = lease._state
        if on_lost is not None:
            state.on_lost = lambda: on_lost(lease)
        try:
            self._renewer.add(state)
            yield lease
        except BaseException as exc:
            self._leave(lease)
            note_loss(state, exc)
            raise
        self._leave(lease)
        raise_loss(state)

    def _leave(self, lease: Lease) -> None:
        timeout = self._patience_at_end(lease._state)
        if timeout is None:
            return
        try:
            lease._release(timeout)
        except Exception as exc:
            not_released(lease._state, exc)

    def transaction(
        self, *leases: Lease | Claim, isolation: _writing.Isolation | None = None
    ) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A block with a psycopg connection in a transaction, with all `leases` presented in the order of their names.

        As `Lease.transaction`, for work that needs several leases; for sequences pass ``lease.claim.with_sequence(n)``.
        """
        return _writing.transaction(self._backend, self._claims(leases), isolation=isolation)

    def close(self) -> None:
        """Ends renewals and waiting acquires and closes the connections this Fence has opened, nobody else's.

        Leases that are still held are not given back: they end with their ttl.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
