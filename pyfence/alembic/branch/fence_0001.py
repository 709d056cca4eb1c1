"""Leases, guards and views: revision 0001 of schema fence, as a branch of the application's migrations."""

from pyfence._migration_branch import run_downgrade, run_upgrade

revision = "fence_0001"
down_revision = None
branch_labels = ("fence",)
depends_on = None


def upgrade() -> None:
    """Run the frozen files of this revision."""
    run_upgrade("0001", before=None)


def downgrade() -> None:
    """Take this revision back."""
    run_downgrade("0001", before=None)
