# Everything a newcomer needs: `make demo`, `make test`, `make check`. The environment is made in .venv on first use.

PYTHON ?= python3
BIN := .venv/bin
ONE_THREAD := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false  # tiny models: a second thread only waits

.PHONY: demo test check lint types bench soak clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	# Beside the environment, for the tests with ZeRO: transformers and accelerate act otherwise where they find it.
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps \
	    --target .venv/deepspeed deepspeed hjson msgpack py-cpuinfo einops
	touch $@

demo: .venv/installed  ## real GRPO on a tiny language model: uniform against adaptive
	$(ONE_THREAD) $(BIN)/budgetalloc demo

test: .venv/installed  ## all tests and doctests
	$(ONE_THREAD) $(BIN)/pytest -q -n 2

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

check: lint types test  ## what must hold before a commit

bench: .venv/installed  ## the figures of benchmarks/README.md
	$(ONE_THREAD) $(BIN)/python benchmarks/solvers.py
	$(ONE_THREAD) $(BIN)/python benchmarks/callback_cost.py

soak: .venv/installed  ## 2,000 real steps: memory flat, the budget exact at every step
	$(ONE_THREAD) $(BIN)/python benchmarks/soak.py

clean:
	rm -rf .venv runs
