#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the lab's KVM host kernel with lockdep, KASAN and kmemleak: Debian's Linux 6.1 source and
# debug.config. Takes half an hour on two cores, once; for runs by hand (docs/testing.md).
#
#   debug-kernel.sh   builds if it has to, and prints the directory: its bzImage boots, modules are
#                     built with `make -C DIRECTORY M=...`
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fragment=$here/debug.config
tarball=/usr/src/linux-source-6.1.tar.xz
cache=${TMEM_CACHE:-$HOME/.cache/tmem}/lab-host-debug

say() { printf 'debug kernel: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

[[ -f $tarball ]] || die "$tarball is missing: apt-get install linux-source-6.1"
key=$({
  dpkg-query -W -f '${Version}\n' linux-source-6.1
  gcc --version | head -n 1
  sha256sum < "$fragment"
} | sha256sum | cut -c 1-16)
tree=$cache/$key

if [[ ! -f $tree/.complete ]]; then
  # Only the newest is kept: a tree is 2 GiB.
  rm -rf "$cache"
  mkdir -p "$tree"
  say 'unpacking'
  tar -xf "$tarball" -C "$tree" --strip-components=1
  make -C "$tree" -s tinyconfig >&2
  (cd "$tree" && scripts/kconfig/merge_config.sh -m .config "$fragment") > "$tree/merge.log"
  make -C "$tree" -s olddefconfig >&2
  while read -r option; do
    grep -qxF "$option" "$tree/.config" || die "$option of debug.config did not take effect"
  done < <(grep '^CONFIG_' "$fragment")
  say "compiling with $(nproc) jobs, log in $tree/build.log"
  make -C "$tree" -j "${TMEM_JOBS:-$(nproc)}" LOCALVERSION=-tmem-debug bzImage modules \
    > "$tree/build.log" 2>&1 || {
    tail -n 20 "$tree/build.log" >&2
    die 'failed'
  }
  touch "$tree/.complete"
fi
printf '%s\n' "$tree"
