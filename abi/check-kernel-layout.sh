#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Holds the layout of tmem_abi.h against compilers set up as the kernel sets them up, and shows
# that its assertions notice a change. The guest kernel's build includes the header too; this
# takes seconds and needs no kernel.
set -euo pipefail

abi="$(cd "$(dirname "$0")" && pwd)"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# The kernel's ABI flags for x86-64; its types come from its own exported header.
flags=(-std=gnu11 -D__KERNEL__ -ffreestanding -m64 -fno-pic -mno-red-zone -mcmodel=kernel
  -mno-sse -mno-mmx -fno-strict-aliasing -fno-common -fshort-wchar -Wall -Wextra -Werror
  -fsyntax-only)

# compiles COMPILER DIRECTORY: whether the header in DIRECTORY compiles as kernel code.
compiles() {
  printf '#include "tmem_abi.h"\n' >"$scratch/use.c"
  "$1" "${flags[@]}" -I "$2" -c "$scratch/use.c" 2>"$scratch/errors"
}

failed=0
for compiler in gcc clang; do
  if compiles "$compiler" "$abi"; then
    echo "PASS abi kernel layout with $compiler"
  else
    cat "$scratch/errors"
    echo "FAIL abi kernel layout with $compiler"
    failed=1
  fi

  mkdir -p "$scratch/altered"
  # A field too many in the descriptor.
  sed 's/^struct tmem_desc {/&\n\ttmem_u64 too_many;/' "$abi/tmem_abi.h" \
    >"$scratch/altered/tmem_abi.h"
  if ! cmp -s "$abi/tmem_abi.h" "$scratch/altered/tmem_abi.h" &&
    ! compiles "$compiler" "$scratch/altered" && grep -q 'assert' "$scratch/errors"; then
    echo "PASS abi kernel layout notices a change with $compiler"
  else
    echo "FAIL abi kernel layout notices a change with $compiler"
    failed=1
  fi
done
exit "$failed"
