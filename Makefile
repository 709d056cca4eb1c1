# The same commands as `python3 dev.py ...`; each makes the virtual environment it needs. Options: make test ARGS="-k guard"
PYTHON ?= python3
ARGS ?=

.PHONY: demo test lint bench setup freeze freeze-check check

demo test lint bench setup freeze:
	$(PYTHON) dev.py $@ $(ARGS)

freeze-check:
	$(PYTHON) dev.py freeze --check

# What continuous integration runs.
check:
	.ci/run
