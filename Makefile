# One command for each job. On a fresh machine `make demo` and `make test` do all the set-up.
VENV   ?= .venv
PYTHON ?= $(VENV)/bin/python
HOST_PYTHON ?= python3
PYTEST_ARGS ?=
FUZZ_FACTOR ?= 50
FUZZ_FILES ?= 100000
STRESS_RUNS ?= 1000
REGISTRY_ARGS ?=
MUTANTS_ARGS ?=
LIBRARIES_ARGS ?=
OPERATORS_ARGS ?=
TORCH_ARGS ?=
# Files that a small runner is for, and the instruction set of its kernels.
PROGRAM ?=
CPU ?= native
WHEEL_ARGS ?=
# A process for each core; their threads, of which there are more than cores, wait without spinning.
PARALLEL = OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -n auto --maxprocesses=4 --dist=worksteal
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.def' -o -name '*.inc' -o -name '*.inl' -o -name 'source_kinds.py')
CROSS_CXX ?= aarch64-linux-gnu-g++
# The release that `make torch` tests.
TORCH ?= 2.14.1
# Other Pythons, with a torch of their own, for `make versions`.
PYTHONS ?=
CPU_TORCH := torch==2.13.0+cpu
# What the extras it is given the names of need.
NEEDS := import sys, tomllib; \
         extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
         print(*(need for name in sys.argv[1:] for need in extras[name]), sep="\n")

.PHONY: help demo test test-slow fuzz fuzz-files stress mutants registry libraries operators operators-page torch \
        versions tsan browser update-golden core runner aarch64 objects build bench docs site wheel clean
help:
	@echo 'make demo           set up, then train and test a digit classifier (under a minute)'
	@echo 'make test           set up, then run the default tests'
	@echo 'make test-slow      run the slow tests too'
	@echo 'make fuzz           random programs, calls and bad input (FUZZ_FACTOR times the default)'
	@echo 'make fuzz-files     damaged files under AddressSanitizer (FUZZ_FILES of them)'
	@echo 'make stress         1000 runs of 16 stages, 4 replicas and 64 micro-batches with random delays'
	@echo 'make mutants        insert bugs on purpose; random programs must find each of them'
	@echo 'make registry       replace each public name by one that does nothing; its test must fail'
	@echo 'make libraries      small models of five libraries, compared with eager'
	@echo "make operators-page docs/reference/operators.md: which of them work, in which types"
	@echo "make operators      each of PyTorch's operators with its tests' arguments, compared with eager"
	@echo 'make torch         test with another release of torch: make torch TORCH=2.15.0'
	@echo 'make versions       files that one Python writes and another loads: make versions PYTHONS="a/bin/python b/bin/python"'
	@echo 'make tsan           two executors in two threads under ThreadSanitizer'
	@echo 'make browser        the report page and the site in headless Chromium; pictures in build/browser'
	@echo 'make update-golden  rewrite the expected part of the golden files; read the diff'
	@echo 'make core           compile csrc except kernels and python, without torch'
	@echo 'make runner         link build/runner/poptorch-run: one file without torch and Python'
	@echo '                    (PROGRAM=FILE CPU=avx2: build/runner/small/poptorch-run, for that file)'
	@echo 'make aarch64        compile the files that need neither torch nor x86 with aarch64-linux-gnu-g++'
	@echo 'make objects        compile the files of `make build` that do not need torch'
	@echo 'make build          build poptorch._C in place, for work from the checkout'
	@echo 'make bench          compare speed with PyTorch eager (make bench BENCH_ARGS=--peers)'
	@echo 'make docs           run the examples of docs/ and rewrite what they print'
	@echo 'make site           the pages with search in build/site; a broken link is an error'
	@echo 'make wheel          build a wheel for all supported releases of torch into dist, and test it'
	@echo 'make clean          remove what was built, but not $(VENV)'

demo: $(VENV)/installed
	$(PYTHON) examples/digits.py

test: $(VENV)/installed $(VENV)/bytecode
	$(PARALLEL) $(PYTEST_ARGS)

test-slow: $(VENV)/installed $(VENV)/bytecode
	$(PARALLEL) -m '' $(PYTEST_ARGS)

fuzz: $(VENV)/installed
	POPTORCH_FUZZ=$(FUZZ_FACTOR) $(PYTHON) -m pytest tests/fuzz $(PYTEST_ARGS)

fuzz-files: $(VENV)/installed
	$(PYTHON) -m tests.fuzz.asan $(FUZZ_FILES)

stress: $(VENV)/installed
	POPTORCH_STRESS=$(STRESS_RUNS) OMP_WAIT_POLICY=passive $(PYTHON) -m pytest -n0 \
		tests/run/host/test_host_stages.py -k stress $(PYTEST_ARGS)

mutants: $(VENV)/installed
	$(PYTHON) -m tests.fuzz.mutants $(MUTANTS_ARGS)

registry: $(VENV)/installed
	$(PYTHON) -m tests.registry $(REGISTRY_ARGS)

libraries: $(VENV)/installed build/libraries/installed
	$(PYTHON) -m tests.libraries $(LIBRARIES_ARGS)

operators: $(VENV)/installed build/operators/installed
	$(PYTHON) -m tests.operators $(OPERATORS_ARGS)

operators-page: $(VENV)/installed build/operators/installed
	for dtype in float32 float16 bfloat16; do \
	  $(PYTHON) -m tests.operators --count 2 --dtype $$dtype --results build/operators/results; \
	done
	$(PYTHON) -m tests.operators.table build/operators/results 2

# With ccache, only what sees torch's headers is compiled.
torch: $(VENV)/installed
	$(PYTHON) -m tests.torch_release $(TORCH) $(TORCH_ARGS)

empty :=
versions: $(VENV)/installed
	@for python in $(PYTHONS); do $$python setup.py -q build_ext --inplace || exit 1; done
	POPTORCH_TEST_PYTHONS="$(subst $(empty) $(empty),:,$(strip $(PYTHONS)))" \
	  $(PYTHON) -m pytest -n0 -v tests/versions $(PYTEST_ARGS)

tsan: $(VENV)/installed
	$(PYTHON) -m tests.tsan

browser: $(VENV)/installed build/browser/installed site
	PYTHONPATH=build/browser/packages $(PYTHON) -m pytest tests/browser -n0 $(PYTEST_ARGS) \
	  -o python_files='check_*.py'

update-golden: $(VENV)/installed
	$(PYTHON) -m pytest --update $(PYTEST_ARGS)

core: $(VENV)/tools
	$(PYTHON) setup.py -q build_core

# Without torch, in one file that any Linux of this processor runs. With PROGRAM a second one, which
# has the kernels of these programs alone, for one instruction set.
runner: $(VENV)/tools
	$(PYTHON) setup.py -q build_runner $(if $(PROGRAM),--program='$(PROGRAM)' --cpu=$(CPU))
	@echo '[make] build/runner/$(if $(PROGRAM),small/)poptorch-run'

# Needs Debian's package g++-aarch64-linux-gnu. Unoptimized: it shows what compiles, and is not run.
aarch64: $(VENV)/tools
	DEBUG=1 CXX=$(CROSS_CXX) $(PYTHON) setup.py -q build_aarch64

# What `build` needs no torch for.
objects: $(VENV)/tools
	$(PYTHON) setup.py -q build_objects

build: $(VENV)/torch
	$(PYTHON) setup.py -q build_ext --inplace

bench: $(VENV)/installed
	$(PYTHON) -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/installed
	$(PYTHON) -m pytest tests/docs --update $(PYTEST_ARGS)

# All pages are read anew: pages that were read before would not report their broken links again.
site: build/site-venv/installed
	build/site-venv/bin/python -m sphinx -q -W -E --keep-going -n -c docs -d build/site-read . build/site
	cp build/site/README.html build/site/index.html
	@echo '[make] build/site/index.html'

wheel: $(VENV)/torch
	$(PYTHON) -m tests.wheel $(WHEEL_ARGS)

clean:
	rm -rf build dist poptorch/lib poptorch.egg-info .pytest_cache .hypothesis

$(VENV)/tools:
	$(HOST_PYTHON) -m venv $(VENV) || { echo '[make] no venv module: install python3-venv'; exit 1; }
	$(PYTHON) -m pip install -q 'setuptools>=70' wheel ninja 'pybind11>=3,<4'
	touch $@

# torch alone at first: a looser requirement would bring the newest build and its CUDA packages.
# The CPU build is looked for where pip is set up to look, then in PyTorch's own index. Bytecode of all
# files, of which a program reads a fifth, would take longer than the rest of it.
$(VENV)/torch: $(VENV)/tools
	@echo '[make] installing the CPU build of torch into $(VENV)'
	@$(PYTHON) -m pip install -q --no-compile $(CPU_TORCH) 2>/dev/null || \
	  $(PYTHON) -m pip install -q --no-compile --index-url https://download.pytorch.org/whl/cpu $(CPU_TORCH)
	$(PYTHON) -c '$(NEEDS)' test examples > $(VENV)/needs.txt
	$(PYTHON) -m pip install -q --no-compile -r $(VENV)/needs.txt
	touch $@

# For the processes of the tests. Some packages bring files that are no programs.
$(VENV)/bytecode: $(VENV)/torch
	$(PYTHON) -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

# Beside the environment, which keeps its own versions of what both have, such as torch.
build/libraries/installed: $(VENV)/torch
	$(PYTHON) -m pip install -q --upgrade --target build/libraries transformers diffusers torch_geometric
	$(PYTHON) -m pip install -q --upgrade --target build/libraries --no-deps torchvision==0.28.0 timm \
	  accelerate pytorch-lightning torchmetrics lightning-utilities
	touch $@

# What the tests of torch import.
build/operators/installed: $(VENV)/torch
	$(PYTHON) -m pip install -q --upgrade --target build/operators expecttest
	touch $@

# Debian's Chromium, where there is none, and what drives it: the packages of the extra `browser`.
build/browser/installed: pyproject.toml
	command -v chromium > /dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || \
	  { echo '[make] no Chromium: install the package chromium'; exit 1; }
	mkdir -p build/browser
	$(PYTHON) -c '$(NEEDS)' browser > build/browser/needs.txt
	$(PYTHON) -m pip install -q --upgrade --target build/browser/packages -r build/browser/needs.txt
	touch $@

# By itself, as it needs neither torch nor a compiler: the packages of the extra `site`.
build/site-venv/installed: pyproject.toml
	$(HOST_PYTHON) -m venv build/site-venv
	build/site-venv/bin/python -c '$(NEEDS)' site > build/site-venv/needs.txt
	build/site-venv/bin/python -m pip install -q -r build/site-venv/needs.txt
	touch $@

# Editable: the tests run the Python files of the checkout, so only C++ makes it stale. Where torch
# is new, most files are compiled while it is installed. `build` shows how far the compiler is; pip,
# which would hide it, finds nothing left to compile.
$(VENV)/installed: $(VENV)/tools setup.py pyproject.toml $(SOURCES)
	@echo '[make] building poptorch; the first time takes a few minutes'
	test -e $(VENV)/torch || $(MAKE) --no-print-directory -j2 $(VENV)/torch objects
	@$(MAKE) --no-print-directory build
	$(PYTHON) -m pip install -q --no-build-isolation -e '.[test,examples]'
	touch $@
