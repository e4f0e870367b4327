# One command each: quickstart, test, check, and the rest below; every one sets up .venv first

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
QUICKSTART := quickstart
STORAGE := sweeps
PYTEST := $(BIN)/python -m pytest
# The fast and the slow suite run in two processes; a file's tests stay together, so that its
# fixtures are made once. Slow files keep their order, in which the long ones come first. Tests
# marked `cluster` run alone: each has several nodes already.
IN_TWO := -n 2 --dist loadfile
# Compiled once, not by every process that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test slow cluster gpu everything check format tree bench docs links dist sbom clean

help:
	@echo "make quickstart   set up, run the quickstart sweep, print its table and where to look next"
	@echo "make test         set up, then the fast tests: CPU, no network, 4 to 25 minutes"
	@echo "make check        ruff, format, mypy --strict, import contracts; figures of the code, and limits"
	@echo "make format       rewrite what ruff can"
	@echo "make tree         print every file of the repository with its own first line"
	@echo "make slow | cluster    the tests with that marker; files that passed as they are now are left"
	@echo "                  out (SWEEP_STAMPS=ignore: none is)"
	@echo "make gpu          tests and measurements on a CUDA device, JSON into build/gpu/: .ci/gpu"
	@echo "make everything   what .ci/run runs, and all of it; then writes .ci/stamps.json anew"
	@echo "make bench        every benchmark that needs no files of yours, JSON into build/bench/"
	@echo "make docs | links     the site into build/site/, without a warning; dead links, with a network"
	@echo "make dist | sbom  wheel and source archive into dist/; their dependencies' licences and SBOM"
	@echo "make clean        remove caches and builds; keeps .venv and $(STORAGE)/"

setup: $(STAMP)

# One environment for running and developing: the group dev adds little beside torch and Ray, and a
# second environment would be a second thing to go stale. Runs again when either file changes; what
# is installed and still fits is left alone. pip knows groups from 25.1 on.
# torch comes first and asked for exactly: a range, or torch as somebody's dependency, may choose a
# build that brings several GB of CUDA packages where a CPU build has been set up. On a CUDA machine
# set pip up for the CUDA build wanted; constraints.txt accepts any build of the version.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' found. Install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, got $$($(PYTHON) --version 2>&1) from '$(PYTHON)'. Name another: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  rm -rf .venv; echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: install the package python3-venv."; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -e '.[cluster]' --group dev -c constraints.txt
	@touch $@

quickstart: $(STAMP)
	$(BIN)/sweep run quickstart --name $(QUICKSTART) --storage $(STORAGE)
	@echo
	@echo "Where to look next:"
	@echo "  $(BIN)/sweep best $(QUICKSTART) --storage $(STORAGE)"
	@echo "      the best pair of every setting, and why the others lost"
	@echo "  $(BIN)/sweep ui --storage $(STORAGE)"
	@echo "      winners beside plain training, and every arm, in MLflow"
	@echo "  $(BIN)/sweep export $(QUICKSTART) --storage $(STORAGE) --out results"
	@echo "      tables, and configurations that run again exactly"
	@echo "  $(BIN)/sweep spaces"
	@echo "      the other search spaces"

test: $(STAMP)
	$(PYTEST) $(IN_TWO) --durations=10

# A marker that no test carries yet is no failure: pytest exits 5 when it selected nothing. Files of
# `slow` and `cluster` that passed as they are now are left out: see tests/support/stamps.py.
define marked
$(PYTEST) --durations=10 $(2) -m "$(1)" || { code=$$?; test $$code -eq 5 && echo "No test matches -m '$(1)'."; }
endef

slow: $(STAMP)
	$(call marked,slow and not gpu and not network and not cluster,$(IN_TWO) --no-loadscope-reorder -p tests.support.stamps --stage slow)

cluster: $(STAMP)
	$(call marked,cluster and not gpu and not network,-p tests.support.stamps --stage cluster)

# On a commit: what passes is stamped with it. Commit .ci/stamps.json afterwards.
everything:
	@test -z "$$(git status --porcelain)" || { \
	  echo "Stamps are of a commit. Commit or remove first:"; git status --short; exit 1; }
	SWEEP_STAMPS=write .ci/run

gpu: $(STAMP)
	PYTHON=$(BIN)/python .ci/gpu

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.support.code_figures

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

tree: $(STAMP)
	@$(BIN)/python -m tests.support.file_tree

# Each benchmark prints one JSON object; a file without a main is part of another. At their smallest
# sizes tests/benchmarks/test_every_benchmark.py runs them.
bench: $(STAMP)
	@mkdir -p build/bench
	@for file in $$(grep -l __main__ $$(grep -L required=True benchmarks/*.py)); do \
	  name=$$(basename "$$file" .py); \
	  if grep -q support.browser "$$file" && ! command -v chromium >/dev/null; then \
	    echo "$$name is left out: it needs Debian's package chromium"; continue; fi; \
	  echo "$$name -> build/bench/$$name.json"; \
	  $(BIN)/python -m "benchmarks.$$name" >"build/bench/$$name.json" || exit 1; done

# The pages as a site; a warning fails. Links are checked by `make links`, with a network.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --group docs -c constraints.txt
	$(BIN)/python -m sphinx --fail-on-warning --quiet -b html docs build/site
	@echo "build/site/index.html"

links: docs
	$(BIN)/python -m sphinx --quiet -b linkcheck docs build/links

# Wheel and source archive; TAG: that of a release, which must be v and the version.
dist:
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	  test -z "$(TAG)" || test "$(TAG)" = "v$$version" || { echo "tag $(TAG) is not v$$version"; exit 1; }
	$(PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/python -m pip install --quiet build twine
	build/dist-venv/bin/python -m build --outdir dist .
	build/dist-venv/bin/twine check --strict dist/*

# What a user's environment holds, from the wheel alone: CycloneDX, and a line with each licence.
sbom: dist
	$(PYTHON) -m venv --clear build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	build/wheel-venv/bin/python -m pip install --quiet dist/*.whl -c constraints.txt
	build/dist-venv/bin/python -m pip install --quiet cyclonedx-bom pip-licenses
	build/dist-venv/bin/cyclonedx-py environment build/wheel-venv/bin/python -o build/sbom.json
	build/dist-venv/bin/pip-licenses --python build/wheel-venv/bin/python --from mixed \
	  --format csv --output-file build/licences.csv

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
