# SPDX-License-Identifier: Apache-2.0
# Thin: each target is one script, and each works as the first command on a fresh machine.
#   make demo | test | bench            the three things to try first
#   make test SANITIZE=address          address, undefined, thread or address,undefined; own build folder
#   make fast | soak                    one tier of the tests
#   make fuzz SECONDS=120               all fuzzers, under clang; own build folder
#   make numerics                       measures what the formats of the states do to training: docs/numerics.md
#   make report [MINUTES=…] [SECTIONS=…] DeepSpeed's published experiments and their counterparts: docs/report.md; goes on if stopped
#   make scale                          a model of steps on up to 16,384 GPUs, its checks, and the planner run at as many ranks: docs/scaling.md
#   make test-gpu | bench-gpu           on a machine with a GPU; TREE=…: a folder of scripts/gpu/pack.sh, made elsewhere
#   make setup | build | lint | format | install PREFIX=… | package | wheel | wheel-aarch64 | docs | clean
# OTR_UNITY=OFF compiles each source by itself: for who edits one at a time.
SHELL := /bin/bash
comma := ,
SANITIZE ?=
TIER ?= all
SECONDS ?= 120
MINUTES ?=
SECTIONS ?=
PREFIX ?= /usr/local
TREE ?=
VARIANT := $(subst thread,tsan,$(subst undefined,ubsan,$(subst address,asan,$(subst $(comma),-,$(SANITIZE)))))
BUILD := build/$(or $(VARIANT),release)
VENV_PYTHON := build/venv/bin/python
INSTALLED := outrigger outrigger_simulated outrigger_cuda outrigger_mpi outrigger_nccl outrigger_tool

.PHONY: all setup frameworks frameworks-and-more frameworks-beside-library build demo test fast soak fuzz bench numerics report scale gpu-tree test-gpu bench-gpu lint format install package wheel wheel-aarch64 docs clean
.NOTPARALLEL:
all: build

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh $(BUILD) "$(SANITIZE)"

# Its own set-up and targets: the first minutes of somebody who looks at Outrigger.
demo:
	@scripts/setup.sh demo
	@scripts/build.sh $(BUILD) "$(SANITIZE)" outrigger_tool gpt
	@$(VENV_PYTHON) scripts/demo/demo.py --build $(BUILD)

# What the adapters are for; big, and only tests of the full tier want them.
frameworks:
	@scripts/setup.sh frameworks

frameworks-and-more:
	@scripts/setup.sh soak

# A fetch leaves the processor idle: meanwhile the library is compiled.
frameworks-beside-library: setup
	@scripts/setup.sh frameworks & scripts/build.sh $(BUILD) "" outrigger outrigger_static; built=$$?; wait $$! && exit $$built

# The closing lines of ctest come last.
test: $(if $(SANITIZE),,frameworks-beside-library) build
	$(if $(SANITIZE),,@scripts/lint.sh)
	@scripts/test.sh $(BUILD) $(TIER) "$(SANITIZE)"

# With a sanitizer the example programs and the command are left to make test.
fast: setup
	@OTR_FAST=ON scripts/build.sh $(BUILD) "$(SANITIZE)"
	@scripts/test.sh $(BUILD) fast "$(SANITIZE)"

# Everything that is too long for make test: 1 to 2 hours.
soak: $(if $(SANITIZE),,frameworks-and-more) build
	@scripts/test.sh $(BUILD) soak "$(SANITIZE)"
	$(if $(SANITIZE),,@$(MAKE) --no-print-directory soak SANITIZE=address,undefined)
	$(if $(SANITIZE),,@$(MAKE) --no-print-directory soak SANITIZE=thread)

fuzz: setup
	@scripts/fuzz.sh $(SECONDS)

bench: build
	@scripts/bench/bench.sh

numerics: build
	@$(VENV_PYTHON) scripts/numerics/numerics.py --build $(BUILD)

report: frameworks build
	@scripts/report/report.sh $(if $(MINUTES),--minutes $(MINUTES)) $(SECTIONS)

# Its own set-up: the library and a Python that draws.
scale:
	@scripts/setup.sh demo
	@scripts/scale/scale.sh

gpu-tree: $(if $(TREE),,build)
	$(if $(TREE),,@scripts/gpu/pack.sh $(BUILD) build/gpu)

test-gpu: gpu-tree
	@scripts/gpu/test.sh $(or $(TREE),build/gpu)

bench-gpu: gpu-tree
	@scripts/gpu/bench.sh $(or $(TREE),build/gpu)

lint: setup
	@scripts/lint.sh build/lint

format: setup
	@scripts/format.sh

# Its own set-up and targets, too: who uses the library needs neither tests nor other languages.
install:
	@scripts/setup.sh build
	@scripts/build.sh $(BUILD) "$(SANITIZE)" $(INSTALLED)
	@cmake --install $(BUILD) --prefix $(PREFIX)

docs: setup
	@scripts/docs.sh build/site

wheel: setup
	@scripts/wheel.sh build/package

wheel-aarch64: setup
	@scripts/wheel_aarch64.sh build/package

package:
	@scripts/setup.sh package
	@scripts/build.sh $(BUILD) "" $(INSTALLED)
	@scripts/package.sh $(BUILD) build/package

clean:
	rm -rf build
