"""${message}

Why: say here what this revision is for and what it means for a running system.
"""

from pyfence._migration_ops import run_frozen

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Run the frozen files of this revision."""
    run_frozen("${up_revision}/up")


def downgrade() -> None:
    """Take this revision back."""
    run_frozen("${up_revision}/down")
