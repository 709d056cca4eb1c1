"""Leases in SQLAlchemy 2.0 and 2.1: every transaction of a session or connection presents them, sync or async.

>>> from pyfence.sqlalchemy import fenced
>>> with Session(engine) as session, fenced(session, lease):
...     session.get(Report, 1).body = "new"
...     session.commit()

Importing this registers nothing. `fenced` registers events on the one session or connection it is given, for the length
of its block, and `translate_errors` on its engine.
"""

from __future__ import annotations

from pyfence.sqlalchemy._errors import translate_errors
from pyfence.sqlalchemy._execute import fenced_execute
from pyfence.sqlalchemy._fenced import Fenced, fenced
from pyfence.sqlalchemy._metadata import protect_metadata
from pyfence.sqlalchemy._protection import protection

__all__ = ["Fenced", "fenced", "fenced_execute", "protect_metadata", "protection", "translate_errors"]
