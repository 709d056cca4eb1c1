# The same commands as `python3 dev.py ...`; each makes the virtual environment it needs. Options: make test ARGS="-k guard"
PYTHON ?= python3
ARGS ?=

.PHONY: demo test lint bench setup check

demo test lint bench setup:
	$(PYTHON) dev.py $@ $(ARGS)

# What continuous integration runs.
check:
	.ci/run
