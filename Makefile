# Two commands set everything up on a machine with Python 3.10+ and make:
#   make demo    install, and show the first minute on one model file
#   make test    install what the tests need, check style and types, run the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP_SHOWN := $(BIN)/python -m pip --disable-pip-version-check
PIP    := $(PIP_SHOWN) --quiet

.PHONY: demo tour test quick test-pythons test-torch test-models test-page test-long test-search snapshots score fuzz soak sbom lock locked lint types docs docs-models site bench bench-peer wheel test-wheel clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "aneforge needs Python 3.10 or newer; say: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(wildcard aneforge/sim/native/*.c aneforge/sim/native/*.h) | $(BIN)/python
	$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(wildcard aneforge/sim/native/*.c aneforge/sim/native/*.h) | $(BIN)/python
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

# A build of PyTorch without a graphics card's libraries where the index has one under this version.
TORCH ?= torch==2.13.0
$(VENV)/.installed-torch: pyproject.toml | $(BIN)/python
	$(PIP) install '$(TORCH)'
	$(PIP) install --editable '.[dev,torch,coreai]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

$(VENV)/.installed-bench: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[bench]'
	@touch $@ $(VENV)/.installed

# The demo reads an ONNX file.
$(VENV)/.installed-onnx: pyproject.toml $(wildcard aneforge/sim/native/*.c aneforge/sim/native/*.h) | $(BIN)/python
	@echo "Installing aneforge and what reads ONNX files into $(VENV), once:"
	$(PIP_SHOWN) install --editable '.[onnx]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed-onnx
	@$(BIN)/python examples/demo.py

# Every part of the package on larger models: some hundred lines.
tour: $(VENV)/.installed
	@$(BIN)/python examples/tour.py

test: lint types
	$(BIN)/python -m pytest -n 2

# The inner loop: style, and tests of every room that are fast and break first.
QUICK ?= $(addprefix tests/test_,$(addsuffix .py,layers targets names systems graph_core traits rows origins recognise \
  anec lower fuse legalise schedule preflight direct_route study survey one_range sim_mac sim_run cost codecs emit \
  report baseline messages))
quick: lint
	$(BIN)/python -m pytest -n 2 $(QUICK)

# The command line on the oldest and the newest Python that is supported, where the machine has them: each in an
# environment of its own.
PYTHONS ?= python3.10 python3.13
COMMANDS := $(addprefix tests/test_,$(addsuffix .py,help cli every_python cli_snapshots cli_status cli_vocabulary cli_target_first))
test-pythons:
	@for python in $(PYTHONS); do \
	  found=$$python; \
	  $$found -c '' 2>/dev/null || found=$$(ls "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$${python#python}.*/bin/python 2>/dev/null | tail -1); \
	  if [ -z "$$found" ]; then echo "$$python is not on this machine: left out"; continue; fi; \
	  test -d $(VENV)-$$python || $$found -m venv $(VENV)-$$python || exit 1; \
	  $(VENV)-$$python/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[dev]' || exit 1; \
	  echo "$$python:"; $(VENV)-$$python/bin/python -m pytest -n 2 $(COMMANDS) || exit 1; \
	done

# What is published, in dist: a source distribution, a wheel with the native kernel (for Linux named by what it asks of
# the system), and one without. Then each wheel in empty environments of the oldest and newest Python of this machine.
wheel: | $(BIN)/python
	$(BIN)/python tools/wheels.py build

test-wheel: wheel
	$(BIN)/python tools/wheels.py try

# What needs PyTorch or Core AI: some hundred megabytes to install, so not part of make test.
test-torch: $(VENV)/.installed-torch
	$(BIN)/python -m pytest -n 2 tests/torch

# Whole networks of other libraries through every exporter: an environment of its own, some gigabytes of files, an hour.
# MODELS=all takes every architecture of the catalogue. torchvision comes without its compiled part, which nobody needs.
MODELS ?=
$(VENV)-models/.installed: pyproject.toml
	test -d $(VENV)-models || $(PYTHON) -m venv $(VENV)-models
	$(VENV)-models/bin/python -m pip --disable-pip-version-check --quiet install '$(TORCH)'
	$(VENV)-models/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[models]'
	$(VENV)-models/bin/python -m pip --disable-pip-version-check --quiet install --no-deps $(VISION)
	@touch $@

VISION ?= torchvision==0.28.0 timm==1.0.30 transformers==5.22.2 diffusers==0.42.1 ultralytics==8.4.190
test-models: $(VENV)-models/.installed
	ANEFORGE_MODELS=$(MODELS) $(VENV)-models/bin/python -m pytest -n 2 tests/models

# The report's page in a real browser. Playwright's client is installed here; the browser is the system's (Debian:
# apt-get install chromium), or the one that ANEFORGE_CHROMIUM names. Pictures are kept in .page-shots.
$(VENV)/.installed-page: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[dev,page]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

test-page: $(VENV)/.installed-page
	$(BIN)/python -m pytest tests/page

# Measured facts on large tensors, and a soak that looks for two answers: minutes, not seconds.
test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m long tests/test_silicon_numerics.py tests/test_one_answer.py tests/test_docs_demo.py

# The property tests on examples that no run has drawn before. Give PROPERTIES to search some files only.
PROPERTIES ?= $(shell grep -l '@given' tests/test_*.py)
test-search: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=search --hypothesis-seed=random $(PROPERTIES)

# What every command prints on a small example, kept as tests/snapshots/*.txt. Read the difference before you commit it.
snapshots: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 tests/test_cli_snapshots.py --write-snapshots
	$(BIN)/python -m pytest tests/test_every_python.py tests/test_supply_chain.py --write-snapshots

# How the project stands to every statement of the seed documents; each is shown by a call.
score: $(VENV)/.installed-dev
	$(BIN)/python tools/seed_score.py

# Damaged files of every kind that a command reads, for ten minutes (FUZZ_SECONDS, FUZZ_SEED), and damaged compiled
# programs of every generation. Files that were treated badly are kept in fuzz-findings.
FUZZ_SECONDS ?= 600
FUZZ_SEED ?= 0
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --record
	ANEFORGE_MUTATIONS=20000 $(BIN)/python -m pytest -n 2 -k mutated tests/test_container_bad.py

lint: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/python -m pyright

# The pages of docs/reference/ that need no other package, and the outputs shown in the written pages.
docs: $(VENV)/.installed-dev
	$(BIN)/python tools/write_docs.py
	$(BIN)/python tools/write_docs.py --outputs

# The pages that need the packages of other formats: the standard's tests, PyTorch's list of ops.
docs-models: $(VENV)/.installed-torch
	$(BIN)/python tools/write_docs.py --models

# The pages of figures against measurements, which are not in this repository: FACTS is the folder that holds them.
FACTS ?= ../shared/facts
VERDICTS = $(FACTS)/silicon/verdicts_train.json $(FACTS)/second/verdicts.json $(FACTS)/third/verdicts.json
REFERENCE := docs/reference
.PHONY: docs-measured pictures
docs-measured: $(VENV)/.installed-dev
	$(BIN)/python bench/verdicts.py $(VERDICTS) --markdown > $(VENV)/page.md
	mv $(VENV)/page.md $(REFERENCE)/verdict-accuracy.md
	$(BIN)/python bench/cost.py $(FACTS) --markdown --plot $(REFERENCE)/pictures/networks.svg > $(VENV)/page.md
	mv $(VENV)/page.md $(REFERENCE)/cost-accuracy.md
	$(BIN)/python bench/decoders.py $(FACTS) --markdown > $(VENV)/page.md
	mv $(VENV)/page.md $(REFERENCE)/decoder-accuracy.md

# The pictures of the report's page in docs/pictures, taken in a browser (see test-page).
pictures: $(VENV)/.installed-page $(VENV)/.installed-onnx
	$(BIN)/python tools/screenshots.py

# The documentation as a site, in site/: an environment of its own, since nothing else needs its packages.
$(VENV)-site/.installed: pyproject.toml
	test -d $(VENV)-site || $(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[site]'
	@touch $@

site: $(VENV)-site/.installed $(VENV)/.installed-onnx
	$(PYTHON) tools/site_pages.py
	$(BIN)/python tools/gallery.py
	$(VENV)-site/bin/zensical build --clean --strict
	@echo "Read it: open site/index.html."
	@echo "The search needs a server: $(PYTHON) -m http.server --bind 127.0.0.1 --directory site 8000, then http://127.0.0.1:8000"

bench: $(VENV)/.installed-bench
	$(BIN)/python bench/targets.py
	$(BIN)/python bench/gate.py
	$(BIN)/python bench/compile.py
	$(BIN)/python bench/sim.py
	$(BIN)/python bench/load.py
	$(BIN)/python bench/cache.py
	$(BIN)/python bench/onnx_coverage.py
	$(BIN)/python bench/numerics.py
	$(BIN)/python bench/containers.py
	$(BIN)/python bench/compress.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/sweep.py
	$(BIN)/python bench/report.py
	$(BIN)/python bench/shapes.py
	$(BIN)/python bench/shapes.py --rules

# The same work in the public peer package, in an environment of its own.
bench-peer: $(VENV)/.installed
	test -d $(VENV)-peer || $(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip --disable-pip-version-check --quiet install aneforge==0.4.0
	$(BIN)/python bench/gate.py --peer $(CURDIR)/$(VENV)-peer/bin/python
	$(BIN)/python bench/peer_times.py $(FACTS) $(CURDIR)/$(VENV)-peer/bin/python

clean:
	rm -rf $(VENV) $(VENV)-python* $(VENV)-peer $(VENV)-models $(VENV)-site site build .cache .models .pytest_cache .ruff_cache .hypothesis .page-shots dist

# Random graphs over the whole vocabulary through everything that answers about them, ten minutes.
SOAK_SECONDS ?= 600
SOAK_SEED ?= 0
soak: $(VENV)/.installed-dev
	$(BIN)/python tools/soak.py --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED) --record

# The software bill of materials of this installation (CycloneDX); EXTRAS="onnx coreml" adds those of extras.
sbom: $(VENV)/.installed-dev
	@$(BIN)/python tools/sbom.py $(EXTRAS)

# What the tests were last run with, pinned; make locked installs exactly that.
lock: $(VENV)/.installed-dev
	( echo "# make lock: what make test was last run with on Python $$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \
	  $(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check ) > requirements-dev.lock
locked: | $(BIN)/python
	$(PIP) install -r requirements-dev.lock
	$(PIP) install --no-deps --editable .
	@touch $(VENV)/.installed $(VENV)/.installed-dev
