# Every target sets up what it needs: Python, pip and make are enough to begin with.
#   make demo                                     learn to write dates, on the generator of the package
#   make demo TRAIN=my.tsv TEST=my_test.tsv       the same on pairs of your own
#   make demo-lm TRAIN=my_book.txt               a language model of a text of your own
#   make test PYTHON=python3.12                   another interpreter for a new environment

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo demo-lm test test-lowest test-newest test-clients test-distributed test-examples conformance lint bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /: /'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'Python 3.10 or newer is needed: make PYTHON=/path/to/python3.12 ...' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## train a small attention model and show what it learned; TRAIN= TEST= for your own pairs
	$(BIN)/python training/demo.py $(if $(TRAIN),--train_file '$(TRAIN)') $(if $(TEST),--test_file '$(TEST)')

demo-lm: $(READY)  ## train a small language model on Python's help texts and show what it writes; TRAIN= for your own
	$(BIN)/python training/demo_lm.py $(if $(TRAIN),--train_file '$(TRAIN)')

test: $(READY)  ## run every test, on two processes of one thread each; WORKERS= for more
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(WORKERS)

test-lowest:  ## the tests with the oldest versions that pyproject.toml allows, in an environment of their own
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e '.[train,analysis]' pytest pytest-xdist
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(VENV)-lowest/bin/python -m pytest -n $(WORKERS)

test-distributed: $(READY)  ## two processes on every script and by every way of sharding, minutes
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m 'launch or not launch' tests/distributed

test-newest:  ## the tests with the newest versions that pyproject.toml allows, in an environment of their own
	test -x $(VENV)-newest/bin/python || $(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[dev]'
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(VENV)-newest/bin/python -m pytest -n $(WORKERS)

$(VENV)/.conformance: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[conformance]'
	touch $@

conformance: $(VENV)/.conformance  ## transformers' own suites on every family, minutes; ONLY= for some
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rf -W ignore --timeout 900 tests/conformance/suites.py \
	  $(if $(ONLY),-k '$(ONLY)')

$(VENV)/.clients: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[clients]'
	touch $@

test-clients: $(VENV)/.clients  ## trl, sentence-transformers, SetFit, lm-evaluation-harness and torchao on our models
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/clients

test-examples: $(READY)  ## the example scripts of transformers; TRANSFORMERS_EXAMPLES=/path/to/transformers/examples/pytorch
	@test -n '$(TRANSFORMERS_EXAMPLES)' || { echo 'TRANSFORMERS_EXAMPLES must name the folder examples/pytorch of transformers' >&2; exit 1; }
	OMP_NUM_THREADS=1 TRANSFORMERS_EXAMPLES='$(TRANSFORMERS_EXAMPLES)' $(BIN)/python -m pytest tests/clients/test_example_scripts.py

lint: $(READY)  ## check style, format, types, docstrings and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pydoclint --quiet hf_seqmodels training
	$(BIN)/codespell

bench: $(READY)  ## measure; each file in benchmarks/ says what
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

clean:  ## remove the environment and what the tools leave behind
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
