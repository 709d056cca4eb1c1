# The same commands as `python3 dev.py ...`; each makes the virtual environment it needs. Options: make test ARGS="-k guard"
PYTHON ?= python3
ARGS ?=

.PHONY: test-browser demo test test-matrix test-oldest mutants lint bench setup freeze docs sql-api freeze-check check stress drivers test-ha test-full

demo test test-matrix test-oldest mutants lint bench setup freeze docs sql-api:
	$(PYTHON) dev.py $@ $(ARGS)

freeze-check:
	$(PYTHON) dev.py freeze --check

# The long runs: random load judged by its history, the state machine, guards changed under 64 writers.
stress:
	$(PYTHON) dev.py test -m stress -n0 -rP $(ARGS)

# What the default run leaves out of the isolation levels: every one with every other parameter.
test-full:
	$(PYTHON) dev.py test -m full $(ARGS)

# Programs and drivers under `pyfence run`: those that are installed, see tests/run/test_run_drivers.py.
drivers:
	$(PYTHON) dev.py test -m drivers -n0 $(ARGS)

# Pages in headless Chromium (Debian: apt install chromium).
test-browser:
	$(PYTHON) dev.py test -m browser -n0 $(ARGS)

# Real clusters: crashes, failovers, restores, on every major version that is there, and three nodes under Patroni.
test-ha:
	$(PYTHON) dev.py test-ha $(ARGS)

# What continuous integration runs.
check:
	.ci/run
