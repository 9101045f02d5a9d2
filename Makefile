# SPDX-License-Identifier: GPL-2.0-only
# The front door. `make help` says what there is.

SHELL := /bin/bash
CONFIG ?= release
TARGETS ?=
PHASES ?=
ARGS ?=
FS ?= ext4
SEED ?=
DURATION_S ?= 120
FAULT ?=
SEEDS ?= 1 2 3 4 5

.PHONY: help setup build check check-long model torture torture-faults demo bench figures
.PHONY: bench-store lint format guest-kernel host-module clean distclean

help:
	@echo 'tmem: a compressed, deduplicated page store on the host for the pages of its guests'
	@echo
	@echo '  make demo          installs, builds, boots guests, shows what tmem does in one table,'
	@echo '                     by the best doorbell that works here, under KVM if that works'
	@echo '  make check         every test; ends with "N passed, N failed, N skipped"'
	@echo '                     PHASES="asan lint ..." runs only those; PHASES=list names them'
	@echo '  make check-long    the same with the long versions of model, store and guest tests'
	@echo
	@echo '  make setup         installs the packages of scripts/packages.txt (root or sudo)'
	@echo '  make build         CONFIG=release|asan|tsan  TARGETS="tmemd base_test ..."'
	@echo '  make guest-kernel  builds the patched guest kernel (cached), prints where it is'
	@echo '  make host-module   builds kvm_tmem for the running kernel, or KDIR=...; never loads it'
	@echo '  make model         proves the protocol models, exhaustively; ARGS="..." go to its runner'
	@echo '  make torture       random operations in a guest against a shadow of its files and memory;'
	@echo '                     FS=ext4|ext4-1k|xfs|btrfs SEED=n DURATION_S=n'
	@echo '  make torture-faults  faults on purpose, which the torture must notice;'
	@echo '                     FAULT=name SEEDS="1 2" DURATION_S=n'
	@echo '  make bench         bench/guest-bench in real guests; ARGS="streaming --quick",'
	@echo '                     "swap ...", "doorbells --kvm": both, with times (kvm_tmem loaded)'
	@echo '  make bench-store   the store against its floor and zram, on pages of this machine;'
	@echo '                     ARGS="--quick", "--part pages"; a zram device is added and removed'
	@echo '  make figures       every figure that has a target, three times (9 minutes; ARGS=--resume)'
	@echo '  make lint          clang-format, clang-tidy, thread safety, checkpatch, shellcheck, tree'
	@echo '                     PHASES="format tidy kernel shell style" runs only those'
	@echo '  make format        lets clang-format rewrite the C++ files'
	@echo '  make clean         removes build/ and out/; make distclean also the caches'
	@echo
	@echo 'Variables for all: TMEM_JOBS (compilers at once, default one a core), TMEM_SEED (seed of'
	@echo 'random tests), TMEM_CACHE (guest kernel, compiler cache; default ~/.cache/tmem).'

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh $(CONFIG) $(TARGETS)

check: setup
	@/usr/bin/python3 scripts/check.py $(PHASES)

check-long: setup
	@TMEM_LONG=1 /usr/bin/python3 scripts/check.py $(PHASES)

model: setup
	@tests/model/run.sh $(ARGS)

torture: build guest-kernel
	@tests/torture/torture.py --fs $(FS) --seed $(SEED) --duration-s $(DURATION_S) $(ARGS)

torture-faults: build guest-kernel
	@tests/torture/faults.py --fault $(FAULT) --seed $(SEEDS) --duration-s $(DURATION_S) $(ARGS)

guest-kernel: setup
	@guest-shims/kernel/build.sh --print

host-module:
	@$(MAKE) --no-print-directory -C host-store/kvm_tmem BUILD=$(CURDIR)/build/host-module

demo: build guest-kernel
	@bench/demo

bench: build guest-kernel
	@bench/guest-bench $(or $(ARGS),streaming --quick)

bench-store: setup
	@scripts/build.sh release store_figures page_samples
	@bench/store-bench $(ARGS)

figures: build guest-kernel
	@bench/guest-bench figures $(ARGS)

lint: setup
	@/usr/bin/python3 scripts/lint.py $(PHASES)

format:
	@/usr/bin/python3 scripts/lint.py --fix-format

clean:
	rm -rf build out

# Only what tmem put there: TMEM_CACHE may be a directory that others use too.
distclean: clean
	cd "$${TMEM_CACHE:-$$HOME/.cache/tmem}" 2>/dev/null && rm -rf guest-kernel ccache lint corpora
