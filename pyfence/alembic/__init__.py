"""Alembic operations that guard tables, and autogenerate for them. Import it in the application's ``env.py``.

>>> import pyfence.alembic

Importing it registers ``op.protect``, ``op.unprotect`` and ``op.set_protection`` with Alembic, and a comparison of the
models' markers with the guards in the database. It also keeps autogenerate from proposing to drop schema `fence`.
"""

from __future__ import annotations

from pyfence.alembic import _compare, _render
from pyfence.alembic._compare import include_name
from pyfence.alembic._ops import ProtectOp, SetProtectionOp, UnprotectOp

__all__ = ["ProtectOp", "SetProtectionOp", "UnprotectOp", "include_name"]

_compare.register()
_render.register()
