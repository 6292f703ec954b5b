# make run    install, then the first experiment: pulls the model (93 MB) on first use
# make figures  all experiments in their short forms, and an index: results/index.html
# make test   install what tests need, then all tests
# make test-slow  the rest: rule 8 and the language on the real model, some minutes
# make test-aot  the same for programs compiled for GPUs and TPUs (their compilers: 2.3 GB)
# make lint   ruff, format check, strict types
# make goldens  remake the reference arrays of tests/golden (needs torch)
#
# PYTHON is any Python >= 3.11 with venv; everything is installed into VENV.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXPERIMENT ?= experiments/quickstart.yaml
PYTEST_ARGS ?=

# Compiled programs are kept between runs; jax itself reads this, sgjax reads no environment.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/build/jax-cache
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run figures test test-slow test-aot run-test-aot lint goldens clean

run: $(VENV)/.run
	$(BIN)/sgjax run $(EXPERIMENT)

figures: $(VENV)/.figures
	$(BIN)/sgjax run --all --quick

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not slow' $(PYTEST_ARGS)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# A venv of its own: beside the GPU's plugin, other tests would look for a GPU.
test-aot:
	$(MAKE) VENV=$(VENV)-aot run-test-aot

run-test-aot: $(VENV)/.aot
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest tests/aot --aot $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

goldens: $(VENV)/.hf
	$(BIN)/python -m tests.golden.make_goldens

clean:
	rm -rf $(VENV) build

# One stamp a set of packages; a change of pyproject.toml installs again.
$(VENV)/.run: pyproject.toml | $(BIN)/pip
	@echo 'installing sgjax into $(VENV)'
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.figures: pyproject.toml | $(BIN)/pip
	@echo 'installing sgjax and what checks its outputs into $(VENV)'
	$(BIN)/python -m pip install --quiet --editable '.[grammar]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo 'installing sgjax and its tools into $(VENV)'
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.aot: pyproject.toml | $(BIN)/pip
	@echo 'installing sgjax, its tools and the compilers of GPUs and TPUs into $(VENV)'
	$(BIN)/python -m pip install --quiet --editable '.[dev,aot]'
	@touch $@

$(VENV)/.hf: pyproject.toml | $(BIN)/pip
	@echo 'installing sgjax and its tools into $(VENV)'
	$(BIN)/python -m pip install --quiet --editable '.[dev,hf]'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'make: $(PYTHON) is no Python >= 3.11; choose one, as in: make PYTHON=python3.12'; \
	    exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo 'make: $(PYTHON) makes no venv; install its venv module (Debian: python3-venv)'; \
	    exit 1; }
