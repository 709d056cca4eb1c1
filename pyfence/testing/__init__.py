"""For the tests of applications: a schema in their database, leases that expire at once, guards that must be there.

The fixtures of `pyfence._pytest_plugin` are there in every run of pytest. They do nothing until a test asks for one.
"""

from __future__ import annotations

from pyfence.testing._asserting import assert_protected
from pyfence.testing._installing import expire, install

__all__ = ["assert_protected", "expire", "install"]
