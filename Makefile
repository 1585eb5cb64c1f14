# Everything runs from a fresh clone: the first target builds a virtual environment, later ones reuse it.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
EXP    ?= .
KGO    := $(VENV)/bin/kgo
STAMP  := $(VENV)/.installed

.PHONY: install demo test lint soak mutants bench push run status pull check clean

install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet '$(TORCH)'
	$(VENV)/bin/python -m pip install --quiet --editable '.[torch]' --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(KGO) demo --dir $(CURDIR)/.demo

test: lint
	$(VENV)/bin/python -m pytest -m "not soak" -n 2 --dist loadgroup

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

soak: $(STAMP)
	$(VENV)/bin/python -m pytest -m soak -n 2 --dist loadgroup --timeout 1800
	$(MAKE) mutants

mutants: $(STAMP)
	$(VENV)/bin/python -m tests.mutants

bench: $(STAMP)
	$(VENV)/bin/python -m benchmarks

push run status pull check: $(STAMP)
	$(KGO) $@ $(EXP) $(ARGS)

clean:
	rm -rf $(VENV) .demo build dist
