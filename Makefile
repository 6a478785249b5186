# Everything sets itself up: a fresh machine needs Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEED ?= 1
MINUTES ?= 30
SECONDS ?= 60
TARGETS ?=
SERVE ?=
CLIENTS ?=
SAMPLE ?=

# A registry that hiccups is no fault of a change: pip asks again, and goes on with what it has of a file.
export PIP_RETRIES ?= 10
export PIP_RESUME_RETRIES ?= 10
export PIP_DEFAULT_TIMEOUT ?= 60

# Where this is set, each of the many processes that the tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# What runs at the same time prints one after the other, where this make can do that.
APART := $(if $(filter output-sync,$(.FEATURES)),--output-sync)

.PHONY: demo serve cluster test guard lint .pyright .mypy format docs site bench bench-compare soak upstream adapters clients agents fuzz mutants wheel clean

demo: $(VENV)/.package ## import sample conversations, branch, rewind, rebuild: the main job in seconds
	$(BIN)/chatledger demo

serve: $(VENV)/.server build/.demo ## the sample conversations over HTTP, on this machine; SERVE="--port 8231" for options
	$(BIN)/chatledger --location build/demo serve $(SERVE)

cluster: $(VENV)/.server ## three NATS servers, two chatledger servers, and nginx if it is installed, in build/cluster until Ctrl-C
	$(BIN)/python -m tools.cluster

build/.demo: | $(VENV)/.server
	rm -rf build/demo
	$(BIN)/chatledger --location build/demo demo
	@touch $@

# More workers than cores, as many tests wait; no more than that, as each imports all frameworks.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadgroup -q
# Where memory has room (4 GB), `make test` writes there, and waits for no disk; `make guard` and `make soak` use disks.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "-p /dev/shm" }')
# The folder is removed at the end. PostgreSQL, which runs as another user, has to get into it.
IN_FOLDER := folder=$$(mktemp -d $(MEMORY)) && trap 'rm -rf "$$folder"' EXIT && chmod 755 "$$folder" && export TMPDIR="$$folder"
# A test that fails is tried once more, alone with the others that did: where it passes then, what it met was the load of the machine. It is
# named, to be mended, and does not stop a change of somebody else. Anything else ends the run at once, such as a crash, or a
# module that cannot be imported, of which pytest would try all tests there are;
# what failed in an earlier run is forgotten first, as it would be tried too.
AGAIN := { [ $$? -eq 1 ] && ! grep -q '\.py":' .pytest_cache/v/cache/lastfailed && $(PYTEST) --last-failed --last-failed-no-failures none && echo "The tests that failed above passed when they were tried again: mend them." >&2; }
# Each worker would rewrite the assertions of all modules, a tenth of the time: only what is tried again has them.

test: $(VENV)/.dev ## the tests, on real servers; what takes long is in `make soak`
	@$(IN_FOLDER) && { $(PYTEST) --cache-clear --override-ini tmp_path_retention_policy=failed --assert=plain -m "not soak and not guard and not lint" --ignore tests/browser || $(AGAIN); }

guard: $(VENV)/.dev ## what takes long and guards a rule: kills, damage, full disks, databases, how-to pages, the explorer in a browser
	@$(PYTEST) --cache-clear -m "(soak and not browser) or (browser and not soak)" tests/faults/test_fault_slice.py tests/docs tests/browser || $(AGAIN)
	@$(IN_FOLDER) && { $(PYTEST) --cache-clear -m "guard and not soak" --ignore tests/browser || $(AGAIN); }

lint: $(VENV)/.dev ## style, types, layers, sizes, and generated pages that are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs=2 --no-print-directory $(APART) .pyright .mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q -m lint tests/test_tidy.py tests/docs tests/typing

.pyright: $(VENV)/.dev
	$(BIN)/pyright

.mypy: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## write the generated reference pages anew
	$(BIN)/python -m docs.generate

site: $(VENV)/.dev ## the documentation as a site in build/site, which needs no network; warnings are errors
	$(BIN)/python -m docs.site

bench: $(VENV)/.bench ## speed as ratios against the alternatives, in one run; table and plots into the docs
	$(BIN)/python -m benchmarks --write-docs

bench-compare: $(VENV)/.dev ## the last two kept results, row by row, with the noise taken into account
	$(BIN)/python -m benchmarks --compare

soak: $(VENV)/.dev ## kills, damage, full disks, bad networks and load, for MINUTES from a SEED; all tests with all examples; upstream
	$(BIN)/python -m tests.faults --seed $(SEED) --minutes $(MINUTES) --out build/soak.json
	CHATLEDGER_SOAK=1 $(PYTEST) --timeout 3600
	$(MAKE) upstream adapters

upstream: $(VENV)/.upstream ## LangGraph's own tests with our saver in the place of theirs: in memory, with all defaults, in directories
	$(BIN)/python -m tests.upstream
	$(BIN)/python -m tests.upstream --ledger defaults langgraph
	$(BIN)/python -m tests.upstream langgraph --ledger directory --fixtures -k memory

# An environment each: they conflict with the development dependencies, and with each other.
FRAMEWORKS ?= adk strands crewai other-frameworks
HOW_TO := tests/docs/test_examples.py::test_examples_run[docs/how-to

adapters: $(FRAMEWORKS:%=$(VENV)-%/.adapters) ## the adapters of frameworks that cannot be installed beside the others, their how-to pages, and Strands' own tests
	set -e; for name in $(FRAMEWORKS); do $(VENV)-$$name/bin/python -m pytest -q tests/infra/entrypoints/adapters "$(HOW_TO)/$$name.md]"; done
	case " $(FRAMEWORKS) " in *" strands "*) $(VENV)-strands/bin/python -m tests.upstream strands ;; esac

$(VENV)-%/.adapters: pyproject.toml
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-$*/bin/python -m pip install --quiet --editable . --group adapters-$*
	@touch $@

clients: $(VENV)-clients/.clients ## LangGraph's unmodified clients on `langgraph dev` and on our server, call by call; CLIENTS="--help" for options
	$(VENV)-clients/bin/python -m tests.clients $(CLIENTS)

agents: build/agents/.installed ## Coding agents themselves against a model on loopback: kept, exported, and gone on with by each other
	$(BIN)/python -m pytest -q -m soak tests/infra/exchange/test_agents_clients.py

build/agents/.installed: Makefile
	npm install --silent --prefix build/agents @anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 @mariozechner/pi-coding-agent@0.73.1
	node build/agents/node_modules/@anthropic-ai/claude-code/install.cjs
	touch $@

$(VENV)-clients/.clients: pyproject.toml
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)-clients/bin/python -m pip install --quiet --editable '.[server,langgraph]' --group clients
	@touch $@

fuzz: $(VENV)/.fuzz ## every decoder of foreign bytes, guided by coverage, each for SECONDS; or only these TARGETS
	$(BIN)/python -m tests.fuzz.coverage --seconds $(SECONDS) $(TARGETS)

mutants: $(VENV)/.mutants ## changes that tests should notice: all of these TARGETS, such as domain/log, or SAMPLE of them drawn with SEED
	$(BIN)/python -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE) --seed $(SEED)) $(TARGETS)

wheel: $(VENV)/.dev ## build the wheel and try it in a clean environment
	.ci/wheel $(BIN)/python

clean: ## remove what the targets made
	rm -rf $(VENV) $(VENV)-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "chatledger needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.package: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.server: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[server,mcp]'
	@touch $@ $(VENV)/.package

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@ $(VENV)/.package

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable . --group bench
	@touch $@

$(VENV)/.upstream: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable . --group upstream
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable . --group fuzz
	@touch $@

$(VENV)/.mutants: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable . --group mutants
	@touch $@
