# `make help` lists the targets. PYTHON=/path/to/python3 chooses the Python that the virtual environment is made from.

VENV := .venv
BIN := $(VENV)/bin
# A HIP runtime that runs kernels on the CPU, so that the rocm backend is tested where there is no GPU.
HIP_HOST := $(CURDIR)/build/hip_host
ON_HIP_HOST := ROCM_PATH='$(HIP_HOST)' TALLOW_CACHE='$(CURDIR)/build/kernel_cache'
# Work runs as late as HIP allows, and blocks and threads in another order, as they may on a GPU.
LATE := HIP_HOST_LAZY=1 HIP_HOST_SHUFFLE=3
# The stages of `make test`, each a target of its own; they say how long they take side by side on two cores. FULL=--full
# adds the slow sweeps of a stage: make test-metal FULL=--full
STAGES := opgen tallow wave64 wave32 devices metal numpy
FULL :=
# How many stages run side by side, each with its share of the processors: on two of them two processes, none of which
# hands out what others run.
SHARE := 1
PYTEST = $(BIN)/pytest -n $(or $(filter-out 1,$(shell expr `getconf _NPROCESSORS_ONLN` / $(SHARE))),0) --dist worksteal $(FULL)
TWO_DEVICES := $(wildcard tests/package/test_hip_*.py) $(patsubst %,tests/package/test_gpu_%.py,graphs objects loader peers user_kernels)
# The CPU without its kernels, which take a minute to compile.
BY_NUMPY := TALLOW_THREADS=0
# What needs the built site, and a browser: make docs runs it.
SITE_TESTS := tests/website/test_site.py
# What compares gradients with those of the CPU in f64.
GRADIENTS := tests/package/test_gradient.py tests/package/test_gradient_methods.py
# What runs models.
MODELS = $(patsubst %,tests/package/test_%.py,logits gpu_runtime $(if $(FULL),gguf runtime))
# Every family of kernels by the package's own self-test; the rest of its tests need no GPU.
SELFTEST := tests/package/test_selftest.py::test_everything_that_a_device_has_is_right
# What needs no device, and the CPU's stage has: how arguments of strange classes are refused, and what backends refuse
# that are not here.
COMMON := strange_class or not_here
# Kernels of products with weights in blocks, whose longest test runs with the waves of 32 alone.
WAVE32 := a_row_of_x or rounded_activations
# Of recorded calls and of errors while a function is traced, the CPU and metal have the same.
RECORDED := test_recorded or traced_methods
# What the loop of an edit leaves out: the compilation of kernels and what runs on GPUs.
QUICK := --ignore tests/kernels --ignore tests/hip_host --ignore-glob '*/test_hip_*' --ignore-glob '*/test_gpu_*' --ignore-glob '*/test_cuda_*'
# Without kernels the ops run in some dtypes, since they call NumPy alike in the others.
SOME_DTYPES := f64 or i16 or complex128
# The oracle is the same on every device, and the CPU's stage has it; fused functions and weights in blocks are the same
# on all array libraries.
ORACLE := $(patsubst %,--ignore tests/conformance/test_%.py,oracle formula_mutations)
ON_ARRAYS := $(patsubst %,--ignore tests/conformance/test_%.py,blocks fusion)
# Python compiles the modules that it imports: a few of those that are installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# What test-gpu and bench-gpu run on. Another GPU_PYTHON has pytest, PyTorch and the rest already: nothing is installed
# for it, and it finds the packages where they lie.
DEVICE := cuda
GPU_PYTHON := $(BIN)/python
ON_GPU := PYTHONPATH='$(CURDIR)/generated:$(CURDIR)/generator$(if $(PYTHONPATH),:$(PYTHONPATH))' $(GPU_PYTHON)
GPU_NEEDS := $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/tallow.stamp)

# The tests start hundreds of processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
# Stages that share the processors are all that runs side by side.
ifeq ($(SHARE),1)
.NOTPARALLEL:
endif
.PHONY: build install first-kernels host-kernels compile-host test test-full test-quick test-array-api $(STAGES:%=test-%) test-gpu hip-host wheel compile generate check lint docs bench bench-gpu bench-model bench-training bench-networks clean help

build: install generate host-kernels  ## set everything up, generate the package and train the example on it
	@$(BIN)/python examples/digits.py

# Compilers need nothing of what pip fetches, so both work at the same time.
install: $(VENV)/pip.stamp
	@$(MAKE) --no-print-directory -j 2 SHARE=2 $(VENV)/tallow.stamp $(if $(wildcard $(VENV)/tallow.stamp),,first-kernels)

# By the package's own build, which finds them compiled when pip runs it.
first-kernels: $(VENV)/pip.stamp
	@[ ! -e generated/setup.py ] || .ci/step "compiling kernels for the CPU, if a compiler is here" \
		sh -c 'cd generated && "$$0" setup.py --quiet build_kernels --inplace' '$(abspath $(BIN))/python'

host-kernels: generate compile-host  ## compile the kernels for the CPU, where a compiler for them is installed; NumPy serves without

compile-host: $(VENV)/opgen.stamp
	@$(BIN)/opgen compile --host

# What has passed the check need not be generated.
test: check compile-host hip-host  ## what every change must pass
	@$(MAKE) --no-print-directory -j 2 --output-sync=line SHARE=2 FULL='$(FULL)' $(STAGES:%=test-%)

test-full: FULL := --full
test-full: test docs  ## the same with the slow sweeps; test-opgen FULL=--full, and so on, runs one stage of it

test-opgen: $(VENV)/tallow.stamp
	@echo "1 of 7, about 5 min: opgen, the compilation of kernels, the HIP runtime for the CPU"
	@$(ON_HIP_HOST) $(PYTEST) --ignore tests/conformance --ignore tests/package $(SITE_TESTS:%=--ignore %)

test-tallow: $(VENV)/tallow.stamp
	@echo "2 of 7, about 5 min: tallow: every op on the CPU with an eighth of its dtypes, its tensors, files and models, its code for GPUs"
	@$(ON_HIP_HOST) $(PYTEST) tests/conformance tests/package $(if $(FULL),,--part 0/8 $(TWO_DEVICES:%=--ignore %))

test-wave64: $(VENV)/tallow.stamp
	@echo "3 of 7, about 2 min: on rocm with waves of 64, cells of a third of the ops and of every dtype, late, replayed, each allocation of its exact size; models"
	@$(ON_HIP_HOST) HIP_HOST_WAVE=64 TALLOW_MEMORY_CACHE=0 $(LATE) $(PYTEST) --device rocm --replay \
		tests/conformance $(MODELS) $(ORACLE) -k "not ($(COMMON)$(if $(FULL),, or $(WAVE32) or $(RECORDED)))" \
		$(if $(FULL),$(SELFTEST),--part 0/16 --cases 0/3)

test-wave32: $(VENV)/tallow.stamp
	@echo "4 of 7, about 45 s: on rocm with waves of 32, another third of the ops and every dtype, gradients, SciPy and scikit-learn"
	@$(ON_HIP_HOST) HIP_HOST_WAVE=32 $(PYTEST) --device rocm \
		tests/conformance/test_cells.py tests/conformance/test_blocks.py $(GRADIENTS) tests/package/test_ecosystem.py \
		-k "not ($(COMMON))" $(if $(FULL),$(MODELS) $(SELFTEST),--part 1/16 --cases 1/3)

test-devices: $(VENV)/tallow.stamp
	@echo "5 of 7, about 35 s: two devices on rocm"
	@$(ON_HIP_HOST) HIP_HOST_DEVICES=2 $(LATE) $(PYTEST) $(TWO_DEVICES)

test-metal: $(VENV)/tallow.stamp
	@echo "6 of 7, about 40 s: on metal, another third of the ops and every dtype, gradients, by its library's CPU"
	@TALLOW_METAL_CPU=1 $(PYTEST) tests/conformance $(GRADIENTS) --device metal $(ORACLE) -k "not ($(COMMON))" \
		$(if $(FULL),,--part 2/16 --cases 2/3 $(ON_ARRAYS))

test-numpy: $(VENV)/tallow.stamp
	@echo "7 of 7, about 10 s: the CPU without its kernels, by NumPy alone"
	@$(BY_NUMPY) $(PYTEST) tests/conformance/test_cells.py \
		-k 'cpu and (unary or binary or reduce or to_dtype or matmul or linear or conv)$(if $(FULL),, and ($(SOME_DTYPES)))'

# The array API's own tests, at a commit of 3 April 2026: 1,100 of them, fetched once, since no package index has them.
# pytest takes the folder of a path that follows an option of theirs after a space for the root of their names.
ARRAY_API := build/array-api-tests
ARRAY_API_COMMIT := 55fcc60179efa2680ddd6cd926ddf17b83530e2b

test-array-api: DEVICE := cpu
test-array-api: $(VENV)/tallow.stamp $(ARRAY_API)/$(ARRAY_API_COMMIT)  ## the array API's own tests, on DEVICE=cpu, cuda or rocm; fetches them from GitHub
	@cd $(ARRAY_API) && DEVICE=$(DEVICE) ARRAY_API_TESTS_MODULE=tests.array_api.on_device PYTHONPATH='$(CURDIR):$(CURDIR)/generated' \
		$(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(CURDIR)/)$(GPU_PYTHON) -m pytest -n auto -q -p no:cacheprovider --disable-deadline \
		-c pytest.ini --xfails-file='$(CURDIR)/tests/array_api/expected_failures.txt' array_api_tests

$(ARRAY_API)/$(ARRAY_API_COMMIT):
	@rm -rf $(ARRAY_API) && git clone --quiet https://github.com/data-apis/array-api-tests $(ARRAY_API)
	@git -C $(ARRAY_API) checkout --quiet $(ARRAY_API_COMMIT) && git -C $(ARRAY_API) submodule --quiet update --init
	@$(PIP) pytest-json-report 'ndindex>=1.8'
	@touch $@

test-quick: $(VENV)/tallow.stamp check compile-host  ## for the loop of an edit: a few cases of each test that needs no GPU runtime, in at most 2 minutes
	@$(BIN)/pytest -n auto --quick $(QUICK)

test-gpu: $(GPU_NEEDS)  ## the conformance suite on a GPU, and backends of one file: DEVICE=cuda; GPU_PYTHON=python3 needs no .venv
	@$(ON_GPU) -m pytest -n auto --dist loadgroup tests/conformance tests/package tests/backends --device $(DEVICE)

hip-host: $(VENV)/tallow.stamp  ## the HIP runtime for the CPU in build/hip_host; use it with ROCM_PATH=build/hip_host
	@tests/hip_host/build.sh build/hip_host
	@$(ON_HIP_HOST) $(BIN)/python tests/hip_host/precompile.py

wheel: compile  ## a wheel of tallow in build/wheel, with the kernels of every target whose compiler is installed
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel ./generated

compile: generate  ## compile the kernels for every target whose compiler is installed
	@$(BIN)/opgen compile

generate: $(VENV)/opgen.stamp  ## write generated/ from spec/ and templates/
	@$(BIN)/opgen generate

check: $(VENV)/opgen.stamp  ## is the spec right, and is generated/ what it says?
	@$(BIN)/opgen check

lint: $(VENV)/tallow.stamp  ## formatting, style and types
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy

docs: generate $(VENV)/docs.stamp  ## the site in build/docs/html, from docs/ and the spec, and its tests in Chromium
	@.ci/step "writing the pages' sources" env $(BY_NUMPY) $(BIN)/python -m docs.site build/docs
	@.ci/step "writing the reference of the spec" $(BIN)/opgen reference build/docs/source/reference --notes build/docs/notes
	@.ci/step "building the site, which takes minutes" env $(BY_NUMPY) \
		$(BIN)/python -m sphinx -q -W --keep-going -j auto -c docs/site build/docs/source build/docs/html
	@.ci/step "testing the site in Chromium" env $(BY_NUMPY) $(BIN)/pytest --full $(SITE_TESTS)
	@echo "build/docs/html/index.html"

bench: $(VENV)/tallow.stamp host-kernels  ## the CPU backend beside NumPy and, where it is installed, PyTorch
	@$(BIN)/python -m benchmarks.cpu run

bench-gpu: $(GPU_NEEDS)  ## every op on a GPU beside PyTorch and CuPy, onto the page in docs/; DEVICE and GPU_PYTHON as above
	@$(ON_GPU) -m benchmarks.gpu run --device $(DEVICE) --output build/benchmarks
	@$(ON_GPU) -m benchmarks.gpu render build/benchmarks/benchmarks.json docs

bench-model: $(GPU_NEEDS)  ## a decoder of GPT-2's size beside PyTorch, onto its page in docs/; DEVICE and GPU_PYTHON as above
	@$(ON_GPU) -m benchmarks.model run --device $(DEVICE) --output build/benchmarks
	@$(ON_GPU) -m benchmarks.model render build/benchmarks/model.json docs
	@$(ON_GPU) -m benchmarks.quantized run --device $(DEVICE) --output build/benchmarks
	@$(ON_GPU) -m benchmarks.quantized render build/benchmarks/quantized.json docs

bench-training: $(GPU_NEEDS)  ## training steps beside PyTorch, onto their page in docs/; DEVICE and GPU_PYTHON as above
	@$(ON_GPU) -m benchmarks.training run --device $(DEVICE) --output build/benchmarks
	@$(ON_GPU) -m benchmarks.training render build/benchmarks/training.json docs

bench-networks: $(VENV)/tallow.stamp host-kernels  ## networks on the CPU beside PyTorch and onnxruntime, onto their page in docs/
	@$(BIN)/python -m benchmarks.networks run all --output build/benchmarks
	@$(BIN)/python -m benchmarks.networks render build/benchmarks/networks.json docs

clean:  ## remove the virtual environment, what was built and all caches
	rm -rf $(VENV) build generated/build generated/tallow/kernels/code .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@python=$$(.ci/python $(if $(PYTHON),'$(PYTHON)')) && \
		echo "making $(VENV) with $$("$$python" --version)" && "$$python" -m venv $(VENV)

# The pip that comes with Python 3.11 takes twice as long as later ones.
$(VENV)/pip.stamp: | $(BIN)/python
	@$(PIP) --upgrade pip setuptools
	@touch $@

# A stamp stands for an installation, which is made again when the file that lists its dependencies changes.
$(VENV)/opgen.stamp: pyproject.toml | $(VENV)/pip.stamp
	@.ci/step "installing opgen and what it is developed with" $(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/tallow.stamp: generated/pyproject.toml $(VENV)/opgen.stamp
	@.ci/step "installing tallow, with kernels for the CPU if a compiler is here" $(PIP) --no-build-isolation --editable ./generated
	@touch $@

$(VENV)/docs.stamp: pyproject.toml $(VENV)/tallow.stamp
	@.ci/step "installing what the site is built with" $(PIP) --editable '.[docs]'
	@touch $@

generated/pyproject.toml: | $(VENV)/opgen.stamp
	@$(BIN)/opgen generate
