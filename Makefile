# "make" alone lists the commands. Each sets up what it needs. SQLALCHEMY=2.0 chooses the other release series.

PYTHON     ?= python3
SQLALCHEMY ?= 2.1
URL        ?= sqlite://
ARGS       ?=
PROGRAMS   ?= 10000
TIER       ?= quick

CPUS      := $(shell getconf _NPROCESSORS_ONLN)
# "loadfile" gives each file to one process: the examples of a page build on each other, and tests of a module share
# their tables. Files with slow tests begin first (tests/conftest.py), for one of them may take minutes.
PROCESSES := --dist loadfile --no-loadscope-reorder -n $(shell echo $$(($(CPUS) < 8 ? $(CPUS) : 8)))
# A test on a server waits for it half of the time.
WITH_SERVERS := --dist loadfile --no-loadscope-reorder -n $(shell echo $$(($(CPUS) < 4 ? 2 * $(CPUS) : 8)))
QUICK     := -m "not slow" --ignore tests/nodes --ignore tests/browser --ignore tests/packaging --ignore tools
# whatever runs on rows: without migrations, commands, and whole services
ROWS      := $(QUICK) $(addprefix --ignore tests/,alembic migrations cli histories helpdesk invoicing neighbours)
# of these, what no name in _private.py is used for
PUBLIC    := $(addprefix --ignore tests/,formats errors ext tokens keys/coprime dialects)
LEFT_OUT  := slow tests (kills, forks, other processes, a million ids), clusters, the browser, other languages, types, packages: make test TIER=all

UV     := .venv/uv/bin/uv
VENV   := .venv/sqlalchemy-$(SQLALCHEMY)
BIN    := $(VENV)/bin
BENCH  := .venv/benchmarks-$(SQLALCHEMY)
CHECK  := .venv/check$(if $(filter 2.1,$(SQLALCHEMY)),,-$(SQLALCHEMY))
LOWEST := .venv/lowest
NEIGHBOURS := .venv/neighbours
EXTRAS := postgresql,mysql,asyncpg,aiomysql,asyncmy,aiosqlite
COMMA  := ,
PINNED := "sqlalchemy[asyncio]~=$(SQLALCHEMY).0"
SOURCES := $(shell find src alembic_templates -type f -not -name '*.pyc') pyproject.toml README.md LICENSE

.PHONY: help demo helpdesk check test test-all simulate programs public outside neighbours mutants lowest browser languages install databases nodes lint pins docs bench bench-instructions bench-quick clean

help:
	@echo 'make demo      every way to write a row, forced collisions, lookups: on SQLite, or on URL='
	@echo 'make helpdesk  a service with FastAPI, tenants and a page, on http://127.0.0.1:8000'
	@echo 'make check     the tests on SQLite, in about a minute; ARGS="tests/lookup -q" runs a part'
	@echo 'make test      the tests on every database that is here; TIER=all runs slow ones, clusters and a browser, too'
	@echo 'make lint      ruff, mypy --strict, pyright'
	@echo 'make docs      the documentation, with warnings as errors'
	@echo 'make bench     the benchmarks, in an hour; "make bench-quick" shows in minutes that they run'
	@echo 'make bench-instructions  what a change costs, in instructions counted by valgrind, in ten minutes'
	@echo 'make simulate  every error at every call of the write path; SERVERS=yes kills connections and workers instead'
	@echo 'make mutants   changes of the library, and whether a test sees each'
	@echo 'make test-all  everything, as CI runs it: also make public, lowest, outside, neighbours'

demo: $(VENV)/demo.done
	@$(BIN)/python -m examples.two_identifiers "$(URL)"

helpdesk: $(VENV)/demo.done
	@$(BIN)/python -m examples.helpdesk $(filter-out sqlite://,$(URL))

check: $(CHECK)/installed.done
	$(CHECK)/bin/python -m pytest $(PROCESSES) $(QUICK) --on sqlite $(ARGS)
	@echo "Left out: PostgreSQL, MySQL, MariaDB: make test. Left out there too: $(LEFT_OUT)"

ifeq ($(TIER),all)
test: $(VENV)/test.done databases browser nodes languages
	$(BIN)/python -m pytest $(WITH_SERVERS) $(ARGS)
else
test: $(VENV)/test.done databases
	$(BIN)/python -m pytest $(WITH_SERVERS) $(QUICK) $(ARGS)
	@echo "Left out: $(LEFT_OUT)"
endif

test-all:
	.ci/run

# Every error at every call of the write path (tests/faults), where "make test" runs a sample: half an hour on all
# databases, and minutes with ARGS="--on sqlite".
# SERVERS=yes does 100 000 operations on each database instead, under kills and rebuilt indexes: half an hour.
ifdef SERVERS
simulate: $(VENV)/test.done databases nodes
	$(BIN)/python tests/histories $(ARGS)
else
simulate: $(VENV)/test.done databases
	PUBLIC_ID_EVERY_FAULT=1 $(BIN)/python -m pytest $(WITH_SERVERS) --dist load --timeout 3600 tests/faults $(ARGS)
endif

# What the write path does without the names in _private.py: more statements, and the same rows, objects and errors.
public: $(VENV)/test.done databases
	SQLALCHEMY_PUBLIC_ID_PUBLIC_ONLY=yes $(BIN)/python -m pytest $(WITH_SERVERS) $(ROWS) $(PUBLIC) tests $(ARGS)

# Random programs (tests/whole/programs), so many a database: hours, where "make test" runs a few for seconds.
programs: $(VENV)/test.done databases
	$(BIN)/python -m pytest tests/whole/programs --programs $(PROGRAMS) $(ARGS)

# Left out are slow tests, which take minutes and call nobody else's code. Old releases use what their neighbours have
# deprecated since.
lowest: $(LOWEST)/installed.done databases
	$(LOWEST)/bin/python -m pytest $(PROCESSES) -W ignore::DeprecationWarning \
	    $(ROWS) -k "test_drivers or not (postgresql or mysql or mariadb)" tests examples src README.md $(ARGS)

# An editable installation with all tools, for working on the library. It replaces the wheel, so whatever needs the
# wheel has to install it again.
install: $(UV)
	@rm -f $(VENV)/*.done
	$(if $(wildcard $(BIN)/python),,$(call create,$(VENV)))
	$(UV) pip install --quiet --python $(BIN)/python --editable '.[$(EXTRAS)]' \
	    --group gate --group lint --group docs --group bench $(PINNED)

# The suites of SQLAlchemy and of packages around it, with the library of this tree loaded: tools/outside/README.md.
outside: $(VENV)/test.done databases
	$(BIN)/python -m tools.outside $(ARGS)

# Packages of others that meet public ids, in an environment of their own. They warn of each other.
neighbours: $(NEIGHBOURS)/installed.done
	$(NEIGHBOURS)/bin/python -m pytest -W default -p no:pytest_alembic tests/neighbours $(ARGS)

# Mutants of the library, and whether a test sees each: tools/mutants/README.md.
mutants: $(VENV)/test.done databases
	@$(UV) pip install --quiet --python $(BIN)/python --group mutants
	$(BIN)/python -m tools.mutants $(ARGS)

browser:
	@tools/chromium up || echo "The tests of the page are skipped, unless ARGS=--require-all-databases." >&2

languages:
	@tools/languages up >/dev/null || echo "The programs in other languages are skipped, unless ARGS=--require-all-databases." >&2

nodes:
	@tools/nodes up || echo "The tests of several nodes are skipped, unless ARGS=--require-all-databases." >&2

databases:
	@tools/databases up || echo "The tests of what is missing are skipped, unless ARGS=--require-all-databases." >&2

lint: $(VENV)/lint.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	PATH=$(CURDIR)/$(BIN):$$PATH pyright --verifytypes sqlalchemy_public_id --ignoreexternal  # all public names have types
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline --min-severity medium .github  # permissions, injections, actions that are not pinned

docs: $(VENV)/docs.done browser
	@rm -rf docs/_build/html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -b html docs docs/_build/html
	SITE=docs/_build/html $(BIN)/python -m pytest --quiet tests/browser/site $(ARGS)

# The versions and hashes of what the workflow "release" installs. Dependabot proposes newer ones every month.
pins: $(UV)
	@for file in build publish; do \
	    (cd .github/requirements && $(CURDIR)/$(UV) pip compile --quiet --upgrade --generate-hashes --no-annotate \
	    --python-version 3.11 --python-platform x86_64-manylinux_2_28 --custom-compile-command "make pins" \
	    --only-binary :all: --output-file $$file.txt $$file.in); done

bench: $(BENCH)/installed.done databases
	$(BENCH)/bin/python -m tools.benchmarks $(ARGS)
	$(BENCH)/bin/python -m tools.benchmarks --write

# Where timings spread by a fifth, these counts differ by thousandths: each ratio is printed beside the stored one.
bench-instructions: $(BENCH)/installed.done databases
	$(BENCH)/bin/python -m tools.benchmarks --suite instructions $(ARGS)
	$(BENCH)/bin/python -m tools.benchmarks --write

bench-quick: $(BENCH)/installed.done databases
	$(BENCH)/bin/python -m tools.benchmarks --quick $(ARGS)

clean:
	rm -rf .venv dist docs/_build .hypothesis .mypy_cache .pytest_cache .ruff_cache

# --- set up

# uv resolves and installs in seconds what takes pip a minute, for each environment.
$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; say PYTHON=python3.12")'
	@echo "Setting up .venv ..." >&2
	@$(PYTHON) -m venv .venv/uv
	@.venv/uv/bin/python -m pip install -qq uv

# The wheel is built once and is what demo and tests run.
dist/built: $(SOURCES) | $(UV)
	@rm -rf dist
	@$(UV) build --quiet --wheel --out-dir dist
	@touch $@

# $(call create,ENVIRONMENT): with pip, which the tests of the wheel call.
create = @$(UV) venv --quiet --seed --clear --python .venv/uv/bin/python $(1)

# $(call install_wheel,ENVIRONMENT,EXTRAS,WHAT ELSE): again if "make install" has put the tree in its place.
define install_wheel
	$(if $(wildcard $(1)/bin/python),,$(call create,$(1)))
	@$(UV) pip install --quiet --python $(1)/bin/python --upgrade --reinstall-package sqlalchemy-public-id \
	    $$(ls dist/*.whl)'[$(2)]' $(3)
	@touch $@
endef

$(VENV)/demo.done: dist/built
	$(call install_wheel,$(VENV),$(EXTRAS),$(PINNED) --group demo)

$(VENV)/test.done $(VENV)/lint.done: dist/built
	$(call install_wheel,$(VENV),$(EXTRAS),$(PINNED) --group gate --group lint $(if $(filter 2.0,$(SQLALCHEMY)),--group cockroachdb))

$(VENV)/docs.done: dist/built
	$(call install_wheel,$(VENV),$(EXTRAS),$(PINNED) --group docs --group gate)

# The tree itself, and no more than 45 packages.
$(CHECK)/installed.done: pyproject.toml | $(UV)
	@$(UV) venv --quiet --clear --python .venv/uv/bin/python $(CHECK)
	@$(UV) pip install --quiet --python $(CHECK)/bin/python --editable . --group check $(PINNED)
	@touch $@

$(BENCH)/installed.done: dist/built
	$(call install_wheel,$(BENCH),postgresql$(COMMA)mysql,$(PINNED) --group bench)

$(NEIGHBOURS)/installed.done: dist/built
	$(call install_wheel,$(NEIGHBOURS),postgresql$(COMMA)mysql,--group neighbours)

# Python 3.10 to 3.12 have wheels of these versions.
$(LOWEST)/installed.done: dist/built
	$(call create,$(LOWEST))
	@$(UV) pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	    -r pyproject.toml --all-extras --group suite
	@$(UV) pip install --quiet --python $(LOWEST)/bin/python --no-deps dist/*.whl
	@touch $@
