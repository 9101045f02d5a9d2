#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs one fuzz target for a bounded time: run-fuzz.sh PROGRAM CORPUS
#
# TMEM_FUZZ_S is the time in seconds (10), TMEM_SEED the seed. What the fuzzer finds new goes to
# out/fuzz/<name>/, an input that fails to out/fuzz/<name>-crash-*; run that again by
# `build/asan/bin/<name> FILE`.
set -euo pipefail

program="$1"
corpus="$2"
name="$(basename "$program")"
root="$(cd "$(dirname "$0")/../.." && pwd)"
found="$root/out/fuzz/$name"
mkdir -p "$found"

seed="${TMEM_SEED:-$(((RANDOM << 15) | RANDOM))}"
echo "seed: TMEM_SEED=$seed"
exec "$program" -seed="$((seed & 0xffffffff))" -max_total_time="${TMEM_FUZZ_S:-10}" \
  -max_len=8192 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -artifact_prefix="$found-" "$found" "$corpus"
