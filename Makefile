# `make` lists the targets. Nothing needs to be set up first: the targets make .venv and install
# into it what they need. An active environment (venv or conda, not conda's base) is used instead.
#
#   make demo DEMO_ARGS="--model gpt2 --page-size 16"
#   make lab  LAB_ARGS="--no-browser --port 9000"
#   make test PYTHON=/path/to/python3.12     which Python .venv is made from
#   make test CONSTRAINTS=                   newest versions instead of the pinned ones

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo lab book serve publish-check bench compiled figures cuda-check test test-long lint format sync clean \
    env-demo env-lab env-book env-test

# --- which environment ------------------------------------------------------------------------
ACTIVE :=
ifeq ($(VIRTUAL_ENV),)
ifneq ($(filter-out base,$(CONDA_DEFAULT_ENV)),)
ACTIVE := $(CONDA_PREFIX)
endif
else ifneq ($(VIRTUAL_ENV),$(CURDIR)/.venv)
ACTIVE := $(VIRTUAL_ENV)
endif

ENV := $(if $(ACTIVE),$(ACTIVE),.venv)
PY := $(ENV)/bin/python
# The pinned versions are for .venv alone. In your own environment what is there stays there, above
# all the torch that was built for your GPU.
CONSTRAINTS := $(if $(ACTIVE),,constraints.txt)
# The programs of the environment find each other by name (jupyter, dot, alembic).
export PATH := $(if $(ACTIVE),$(ACTIVE),$(CURDIR)/.venv)/bin:$(PATH)

# --- setting it up ----------------------------------------------------------------------------
# $(call setup,PROFILE,EXTRAS,LARGER PROFILES): install radixlab[EXTRAS] unless a stamp in the
# environment says that this, or a larger profile that contains it, has been done by this very
# folder, Python, pyproject.toml and constraints.txt. Then print the device.
STAMPS := $(ENV)/.radixlab
define setup
@set -e; \
stamp() { { pwd; "$(PY)" -V; cat pyproject.toml $(CONSTRAINTS); } 2>&1 | cksum; }; \
done=; now=$$(stamp); \
for profile in $(1) $(3); do \
    if [ "$$(cat "$(STAMPS)/$$profile" 2>/dev/null)" = "$$now" ]; then done=1; fi; \
done; \
if [ -z "$$done" ]; then \
    $(if $(ACTIVE),$(check_active),$(make_venv)); \
    echo "Installing radixlab[$(2)] into $(ENV). The first time takes minutes, most of them for torch."; \
    "$(PY)" -m pip install -q --disable-pip-version-check $(CONSTRAINTS:%=-c %) -e ".[$(2)]"; \
    mkdir -p "$(STAMPS)"; now=$$(stamp); \
    for old in demo lab book test; do \
        if [ "$$(cat "$(STAMPS)/$$old" 2>/dev/null)" != "$$now" ]; then rm -f "$(STAMPS)/$$old"; fi; \
    done; \
    echo "$$now" > "$(STAMPS)/$(1)"; \
fi; \
$(device)
endef

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
WANTED := radixlab needs Python 3.11, 3.12 or 3.13

define check_active
test -x "$(PY)" || { echo "The active environment $(ENV) has no bin/python: deactivate it." >&2; exit 1; }; \
"$(PY)" -c "$(SUPPORTED)" || \
    { echo "$(WANTED), and the active environment $(ENV) has $$("$(PY)" -V 2>&1): deactivate it, or activate another." >&2; exit 1; }; \
"$(PY)" -m pip --version >/dev/null 2>&1 || "$(PY)" -m ensurepip >/dev/null 2>&1 || \
    { echo "The active environment $(ENV) has no pip: install pip into it, or deactivate it." >&2; exit 1; }
endef

# A .venv without pip gets one; one that was left half-made, or whose Python has gone, is made anew.
define make_venv
if ! { "$(PY)" -m pip --version || "$(PY)" -m ensurepip; } >/dev/null 2>&1; then \
    python=; \
    for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
        if [ -z "$$python" ] && "$$candidate" -c "$(SUPPORTED)" 2>/dev/null; then python=$$candidate; fi; \
    done; \
    if [ -z "$$python" ]; then \
        echo "$(WANTED), and $(if $(PYTHON),$(PYTHON) is none of them,none of them is on the PATH): install one, or name it with make PYTHON=/path/to/python3.12." >&2; exit 1; \
    fi; \
    "$$python" -c "import ensurepip, venv" 2>/dev/null || \
        { echo "$$python lacks its venv module: install it (on Debian or Ubuntu: apt install python3-venv), or name another Python with make PYTHON=/path/to/python3.12." >&2; exit 1; }; \
    echo "Making .venv with $$("$$python" -V)."; \
    "$$python" -m venv --clear .venv; \
fi
endef

# Importing torch takes seconds: ask it once per torch, GPUs and cores, then read the answer.
define device
here=$$({ ls -d "$(ENV)"/lib/python3*/site-packages/torch-*.dist-info /dev/nvidia[0-9]*; nproc || sysctl -n hw.ncpu; echo "$$CUDA_VISIBLE_DEVICES"; } 2>/dev/null | cksum | tr ' ' '-'); \
if [ ! -s "$(STAMPS)/device/$$here" ]; then \
    mkdir -p "$(STAMPS)/device"; \
    "$(PY)" -c "$$DEVICE" > "$(STAMPS)/device/$$here"; \
fi; \
cat "$(STAMPS)/device/$$here"
endef

define DEVICE
import os, torch
cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
gpu = torch.cuda.is_available() and torch.cuda.get_device_name(0)
print(f"torch {torch.__version__.split('+')[0]}, {gpu or 'CPU'}, {cores} core{'s' * (cores != 1)}")
endef
export DEVICE

env-demo:
	$(call setup,demo,model,lab test)

LAB_EXTRAS := model,lab,sweep
env-lab:
	$(call setup,lab,$(LAB_EXTRAS),test)

BOOK_EXTRAS := model,book,sweep
env-book:
	$(call setup,book,$(BOOK_EXTRAS),test)

env-test:
	$(call setup,test,all)

# --- what one does ----------------------------------------------------------------------------
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /    make \1|/p' Makefile | awk -F'|' '{printf "%-23s %s\n", $$1, $$2}'

demo: env-demo ## the whole story in a terminal (DEMO_ARGS=...)
	@"$(ENV)/bin/radixlab" demo $(DEMO_ARGS)

# Without jupytext's server extension: it would write what a learner tries into the book's pages.
PLAIN := --ServerApp.jpserver_extensions="{'jupyterlab_jupytext': False}"

lab: env-lab exercises/.built ## JupyterLab, opened on the first notebook (LAB_ARGS=...)
	@echo "The exercise sheets are in the folder exercises: begin with exercises/$(firstword $(SHEETS)).ipynb"
	"$(PY)" -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.root_dir="$(CURDIR)" $(PLAIN) $(LAB_ARGS) notebooks/00-start.ipynb

# Each sheet as a notebook to work in. One in which somebody has written is never overwritten; one
# that was deleted comes anew.
SHEETS := $(sort $(basename $(notdir $(wildcard book/exercises/[0-9][0-9]-*.md))))
GONE := $(filter-out $(wildcard exercises/*.ipynb),$(SHEETS:%=exercises/%.ipynb))
exercises/.built: $(SHEETS:%=book/exercises/%.md) $(GONE) | env-lab
	"$(ENV)/bin/radixlab" classroom build $(sort $(basename $(notdir $?))) --out exercises --quiet
	@touch $@
$(GONE):

# RADIXLAB_REPOSITORY=https://github.com/OWNER/NAME puts Colab buttons on the pages and the right
# addresses into the sitemap.
book: env-book book/npm/node_modules/.package-lock.json ## the site, into book/_build/html
	rm -rf book/_build/html
	"$(ENV)/bin/jupyter-book" build --all -W --keep-going -n book

# What the pages load of others (widgets, formulas), at the locked versions.
book/npm/node_modules/.package-lock.json: book/npm/package-lock.json
	@command -v npm >/dev/null || { echo "The book needs npm once (on Debian or Ubuntu: apt install npm)." >&2; exit 1; }
	npm ci --prefix book/npm --ignore-scripts --no-audit --no-fund
	@touch $@

serve: book ## the site on http://localhost:8000/radixlab/
	"$(PY)" tests/publish.py serve

publish-check: book ## is the site fit to publish? every link, picture, title and description
	"$(PY)" tests/publish.py check

bench: env-test $(COMPILED:%=compiled) ## speed and memory beside baselines and SGLang (BENCH_ARGS=..., COMPILED=1)
	@$(COMPILED:%=PYTHONPATH=build/compiled:.) "$(PY)" $(COMPILED:%=-P) -m tests.bench $(BENCH_ARGS)

# By way of an sdist: a build in this folder would leave binaries beside the sources.
compiled: env-test ## floors 0-2 compiled by mypyc, into build/compiled (needs a C compiler)
	rm -rf build/sdist build/compiled
	"$(PY)" -m build --sdist --outdir build/sdist . >/dev/null
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 "$(PY)" -m pip install -q --disable-pip-version-check --no-deps --target build/compiled build/sdist/*.tar.gz

figures: compiled ## measure every figure of README anew and write it (an hour; SGLANG_DIR=...)
	"$(PY)" tests/figures.py measure $(FIGURES)
	"$(PY)" tests/figures.py write

cuda-check: ## what a GPU does with it, in 3 minutes, into book/data (needs torch only; CUDA_ARGS=...)
	"$(if $(wildcard $(PY)),$(PY),python3)" tests/cuda_check.py $(CUDA_ARGS)

test: lint ## every check, and the tests that take seconds
	"$(PY)" -m pytest -m "not long" $(TEST_ARGS)

test-long: env-test ## the tests that take minutes (RADIXLAB_LONG=small: reduced)
	"$(PY)" -m pytest -m long $(TEST_ARGS)

lint: env-test ## style, types, spelling, and which room may import which
	"$(PY)" -m ruff check .
	"$(PY)" -m ruff format --check .
	"$(PY)" -m mypy --strict radixlab
	"$(ENV)/bin/lint-imports"
	"$(ENV)/bin/codespell"

format: env-test ## let ruff format and mend what it can
	"$(PY)" -m ruff format .
	"$(PY)" -m ruff check --fix .

sync: env-test ## bring each pair book/NAME.md and notebooks/NAME.ipynb up to date
	"$(PY)" -m jupytext --sync $$(grep -l '^jupytext:' book/*.md)

clean: ## remove what builds and tests left behind (rm -r .venv removes the environment)
	rm -rf build dist book/_build book/npm/node_modules htmlcov .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .jupyter_cache
	find radixlab tests book notebooks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
