"""Leases, guards and views: the first schema.

Why: everything a fenced write needs. Nothing outside schema fence is touched; tables get their guards later, by
`fence.protect`. Going down is refused while a table still has one.
"""

from pyfence._migration_ops import run_frozen

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the frozen files of this revision."""
    run_frozen("0001/up")


def downgrade() -> None:
    """Take this revision back."""
    run_frozen("0001/down")
