#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Proves the protocol models, and that each fault switch makes its model fail.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# A slow machine must still end: seconds for one search.
time_limit_s=${TMEM_MODEL_TIMEOUT_S:-3600}
# Of one search. The largest needs about 1.5 GB.
memory_limit_mib=${TMEM_MODEL_MEMORY_MIB:-6000}
jobs=${TMEM_MODEL_JOBS:-2}
form=full
only=
trail=

usage() {
  cat <<'END'
usage: tests/model/run.sh [--bounded] [--only TEXT] [--trail FAULT]
  --bounded      the form that is part of `make check`: some models at smaller bounds
  --only TEXT    only the cases whose name contains TEXT
  --trail FAULT  print the shortest counterexample of a fault switch, step by step
environment: TMEM_MODEL_JOBS (2), TMEM_MODEL_MEMORY_MIB (6000), TMEM_MODEL_TIMEOUT_S (3600)
END
}

while [ $# -gt 0 ]; do
  case $1 in
    --bounded) form=bounded ;;
    --full) form=full ;;
    --only) only=${2:?--only needs a text}; shift ;;
    --trail) trail=${2:?--trail needs a fault}; shift ;;
    -h|--help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

for tool in spin gcc; do
  if ! command -v "$tool" > /dev/null; then
    echo "FAIL models: $tool is not installed (run: make setup)"
    exit 1
  fi
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tmem-model.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Clean models. Columns: name | model | search: states or cycles | depth limit | bounds of the
# bounded form | bounds of the full form, = for the same, - for none. A search that reaches its
# depth limit fails.
clean_cases() {
  cat <<'END'
kick          | kick    | states | 100000   | OPS0=2 OPS1=1 DEATHS=0 | OPS0=2 OPS1=2 DEATHS=0
kick-death    | kick    | states | 100000   | OPS0=1 OPS1=1 DEATHS=1 | =
kick-progress | kick    | cycles | 100000   | OPS0=1 OPS1=1 DEATHS=0 | OPS0=2 OPS1=1 DEATHS=0
order         | order   | states | 12000000 | KEYS=3 RING=2 | =
direct        | direct  | states | 4000000  | KEYS=2 RING=2 LANES_USED=1 | =
direct-lanes  | direct  | states | 4000000  | - | KEYS=2 RING=1 LANES_USED=2
buffers       | buffers | states | 2000000  | KEYS=2 RING=2 | =
slots         | slots   | states | 10000000 | KEYS=2 SLOTS=2 RING=2 | KEYS=2 SLOTS=2 RING=3
swap          | swap    | states | 20000000 | KEYS=2 RING=2 | KEYS=3 RING=2
device        | device  | states | 100000   | SLOTS=3 | =
credits       | credits | states | 2000000  | KEYS=3 RESERVE=2 RING=2 | KEYS=3 RESERVE=2 RING=3
pools         | pools   | states | 2000000  | MOUNTS=3 DEATHS=1 RING=2 | MOUNTS=4 DEATHS=2 RING=2
report        | report  | states | 100000   | PAGES=3 | =
report-passed | report  | states | 100000   | PAGES=3 STAYS_UNTIL_PASSED=1 | =
END
}

# Faults. Columns: switch | model that must fail | bounds | what must be found.
fault_cases() {
  cat <<'END'
NO_FENCE_AFTER_POSTED       | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
NO_FENCE_BEFORE_SLEEP       | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
NO_FENCE_AFTER_DONE         | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
NO_FENCE_AFTER_WAITS        | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
LOOKS_BEFORE_QUEUEING       | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
WAITER_CLEARS_SHARED_FLAG   | kick    | OPS0=2 OPS1=1 DEATHS=0 | invalid end state
NO_RING_AT_START            | kick    | OPS0=1 OPS1=1 DEATHS=1 | invalid end state
PER_CPU_LANES               | order   | KEYS=3 RING=2 | stale_read
OBJECT_FLUSH_ONE_LANE       | order   | KEYS=3 RING=2 | stale_read
NO_FLUSH_ON_DROP            | order   | KEYS=3 RING=2 | stale_read
REFUSED_PUT_KEEPS_OLD       | order   | KEYS=3 RING=2 | stale_read
GET_OVER_PENDING            | order   | KEYS=3 RING=2 | stale_read
FILTER_FORGETS              | order   | KEYS=3 RING=2 | stale_read
NO_FLUSH_AFTER_TRUNCATE     | order   | KEYS=3 RING=2 | stale_read
TABLE_FORGETS_OLDEST        | order   | KEYS=3 RING=2 | table_inexact
CANCEL_AS_NOP               | order   | KEYS=3 RING=2 | table_inexact
NO_INVALIDATE_AFTER         | direct  | KEYS=2 RING=2 LANES_USED=1 | stale_read
NOTHING_AFTER_ERROR         | direct  | KEYS=2 RING=2 LANES_USED=1 | stale_read
FLUSH_BEFORE_DROP_ONLY      | direct  | KEYS=2 RING=2 LANES_USED=1 | stale_read
TEST_BEFORE_MARK            | direct  | KEYS=2 RING=2 LANES_USED=1 | stale_read
NO_MARK                     | direct  | KEYS=2 RING=2 LANES_USED=1 | stale_read
GET_OVER_BUFFERS            | buffers | KEYS=2 RING=2 | stale_read
NO_FLUSH_ON_DIRTY           | buffers | KEYS=2 RING=2 | stale_read
LATE_GET_INTO_REUSED_SLOT   | slots   | KEYS=2 SLOTS=2 RING=3 | wrong_bytes
SLOT_REUSED_BEFORE_COMPLETION | slots | KEYS=2 SLOTS=2 RING=2 | wrong_bytes
AREA_FLUSH_LATE             | swap    | KEYS=2 RING=2 | promise_lost
AREA_FLUSH_CROSSES_LANES    | swap    | KEYS=2 RING=2 | promise_lost
PUT_OVER_PENDING            | swap    | KEYS=2 RING=2 | promise_lost
NO_REPLAY                   | swap    | KEYS=2 RING=2 | promise_lost
REPLAY_WITHOUT_FLUSHES      | swap    | KEYS=2 RING=2 | leaked
NO_TAG                      | swap    | KEYS=2 RING=2 | stale_read
DEVICE_READ_FOR_FAILED_LOAD | device  | SLOTS=3 | stale_read
TWO_PAGES_ONE_BIT           | device  | SLOTS=3 | stale_read
WRITTEN_BIT_KEPT            | device  | SLOTS=3 | stale_read
CREDIT_ON_PROMISED_MEMORY   | credits | KEYS=3 RESERVE=2 RING=2 | no_memory
CREDIT_ON_REPORTED_MEMORY   | credits | KEYS=3 RESERVE=2 RING=2 | no_memory
FREED_BEFORE_RETURNED       | credits | KEYS=3 RESERVE=2 RING=2 | no_memory
GRANT_BEFORE_REPLAY         | credits | KEYS=3 RESERVE=2 RING=2 | no_memory
HANDLE_WITHOUT_GENERATION   | pools   | MOUNTS=3 DEATHS=0 RING=2 | wrong_pool
GENERATIONS_RESTART         | pools   | MOUNTS=3 DEATHS=1 RING=2 | wrong_pool
RETURNED_WHILE_TAKEN        | report  | PAGES=3 | dropped_late
NO_COMPARE_AND_SWAP         | report  | PAGES=3 | dropped_late
COPIED_BEFORE_TAKEN         | report  | PAGES=3 | dropped_late
TAKEN_BEFORE_REGISTRATION   | report  | PAGES=3 | dropped_late
END
}

# build DIR MODEL SPIN_OPTIONS GCC_OPTIONS: makes DIR/pan. Option lists are split on purpose.
build() {
  mkdir -p "$1"
  cd "$1"
  # shellcheck disable=SC2086
  if ! spin $3 -a "$here/$2.pml" > spin.log 2>&1 || grep -qi error spin.log; then
    return 1
  fi
  # shellcheck disable=SC2086
  gcc -w -DCOLLAPSE -DNOFAIR "-DMEMLIM=$memory_limit_mib" $4 -o pan pan.c > gcc.log 2>&1
}

defines() {
  local word
  for word in $1; do
    printf -- '-D%s ' "$word"
  done
}

states_of() { sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$1/pan.log"; }
transitions_of() { sed -n 's/^ *\([0-9]*\) transitions .*/\1/p' "$1/pan.log"; }
# What the first error was: an assertion's name, or the verifier's words.
error_of() { sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$1/pan.log" | head -n 1; }

# verdict DIR NAME MODEL BOUNDS SECONDS OUTCOME WHY: one line of the table, one of the verdicts.
verdict() {
  printf '%s|%s|%s|%s|%s|%s\n' "$2" "$3 $4" "$(states_of "$1")" "$(transitions_of "$1")" "$5" \
    "$7" > "$1/row"
  if [ "$6" = pass ]; then
    echo "PASS $2" > "$1/verdict"
  else
    echo "FAIL $2: $7" > "$1/verdict"
  fi
  # Progress, in other words than the verdicts below: those are counted.
  echo "models: $2: $6 after $5 s" >&2
}

run_clean() {
  local dir=$1 name=$2 model=$3 search=$4 depth=$5 bounds=$6
  local options=-DSAFETY flags="-m$depth -b -n" begin=$SECONDS outcome=fail why
  if [ "$search" = cycles ]; then
    options=-DNP
    flags="$flags -l"
  fi
  if ! build "$dir" "$model" "$(defines "$bounds")" "-O2 $options"; then
    touch pan.log
    verdict "$dir" "$name" "$model" "$bounds" 0 fail 'does not build'
    return
  fi
  # shellcheck disable=SC2086
  timeout "$time_limit_s" ./pan $flags > pan.log 2>&1 || true
  if ! grep -q 'errors: 0$' pan.log; then
    why="$(error_of "$dir")"
    why=${why:-'did not end (time or memory)'}
  elif grep -q 'max search depth too small' pan.log; then
    why='depth limit reached'
  elif grep -Eqi 'not completed|MEMLIM|out of memory|hash-?(table|array) too small|bit statespace' \
    pan.log; then
    why='search truncated'
  elif ! grep -q 'Full statespace search' pan.log; then
    why='not a full search'
  else
    outcome=pass
    why='0 errors, full search'
  fi
  verdict "$dir" "$name" "$model" "$bounds" $((SECONDS - begin)) "$outcome" "$why"
}

run_fault() {
  local dir=$1 name=$2 model=$3 bounds=$4 expected=$5 begin=$SECONDS found
  if ! grep -q "FAULT_$name\b" "$here/$model.pml"; then
    mkdir -p "$dir" && touch "$dir/pan.log"
    verdict "$dir" "$name" "$model" "$bounds" 0 fail 'no such switch'
    return
  fi
  local options='-O1 -DSAFETY'
  # The states of `order` are one big knot, in which a depth-first search wanders for minutes.
  [ "$model" != order ] || options="$options -DBFS"
  if ! build "$dir" "$model" "$(defines "FAULT_$name $bounds")" "$options"; then
    touch pan.log
    verdict "$dir" "$name" "$model" "$bounds" 0 fail 'does not build'
    return
  fi
  timeout "$time_limit_s" ./pan -m2000000 -n > pan.log 2>&1 || true
  found=$(error_of "$dir")
  case $found in
    *"$expected"*)
      verdict "$dir" "$name" "$model" "$bounds" $((SECONDS - begin)) pass "found: $found" ;;
    '')
      verdict "$dir" "$name" "$model" "$bounds" $((SECONDS - begin)) fail 'no longer fails' ;;
    *)
      verdict "$dir" "$name" "$model" "$bounds" $((SECONDS - begin)) fail \
        "failed for another reason: $found" ;;
  esac
}

print_trail() {
  local switch model bounds expected
  while IFS='|' read -r switch model bounds expected; do
    [ "$switch" = "$trail" ] || continue
    echo "model $model, bounds $bounds, expected: $expected"
    build "$work/trail" "$model" "$(defines "FAULT_$trail $bounds")" '-O2 -DSAFETY -DBFS'
    ./pan -n > pan.log 2>&1 || true
    if [ ! -e "$model.pml.trail" ]; then # too wide for a breadth-first search
      build "$work/trail" "$model" "$(defines "FAULT_$trail $bounds")" '-O2 -DSAFETY'
      ./pan -m2000000 -n > pan.log 2>&1 || true
    fi
    # shellcheck disable=SC2046
    spin -t -p -k "$model.pml.trail" $(defines "FAULT_$trail $bounds") "$here/$model.pml" |
      grep -Ev 'lane\.pml|sub-sequence|\.\(goto\)|goto :b|\[(DO|else|\(1\))\]'
    return 0
  done < <(fault_cases | sed 's/ *| */|/g')
  echo "no such fault: $trail" >&2
  return 1
}

if [ -n "$trail" ]; then
  print_trail
  exit
fi

begin_all=$SECONDS
index=0
running=0
launch() {
  if [ "$running" -ge "$jobs" ]; then
    wait -n || true
    running=$((running - 1))
  fi
  "$@" &
  running=$((running + 1))
}

while IFS='|' read -r name model search depth bounded full; do
  bounds=$full
  [ "$form" = full ] && [ "$full" != = ] || bounds=$bounded
  case $name in *"$only"*) ;; *) continue ;; esac
  [ "$bounds" != - ] || continue
  index=$((index + 1))
  launch run_clean "$work/$(printf %03d $index)" "$name" "$model" "$search" "$depth" "$bounds"
done < <(clean_cases | sed 's/ *| */|/g')
while IFS='|' read -r name model bounds expected; do
  case $name in *"$only"*) ;; *) continue ;; esac
  index=$((index + 1))
  launch run_fault "$work/$(printf %03d $index)" "$name" "$model" "$bounds" "$expected"
done < <(fault_cases | sed 's/ *| */|/g')
wait

if [ "$index" -eq 0 ]; then
  echo "FAIL models: no case is named like '$only'"
  exit 1
fi

echo
echo "Two guest CPUs and one daemon in each model; two lanes unless the bounds say otherwise."
{
  echo 'case|model and bounds|states|transitions|seconds|result'
  cat "$work"/*/row
} | awk -F'|' '{ printf "%-30s %-42s %10s %12s %7s  %s\n", $1, $2, $3, $4, $5, $6 }'
echo
cat "$work"/*/verdict
# A case that left no verdict has failed.
passed=$(cat "$work"/*/verdict | awk '/^PASS/ { passed++ } END { print passed + 0 }')
failed=$((index - passed))
echo
echo "models ($form form, $((SECONDS - begin_all)) s): $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
