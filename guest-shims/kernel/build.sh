#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the guest kernel: Debian's Linux 6.1 source, our patches, the module tmem, a small config.
#
#   build.sh          builds if it has to, with progress on standard error
#   build.sh --print  the same, and prints the directory of bzImage, vmlinux, config, modules/
#   build.sh --key    prints the key of the inputs only
#
# The result is kept in $TMEM_CACHE/guest-kernel/KEY (default ~/.cache/tmem); KEY is a hash of all
# that goes in. The build tree beside it is kept too, so that a change of the module costs seconds.
# Two builds at once wait for each other; an interrupted one leaves nothing half-done.
#
# TMEM_JOBS          compilers at once (default: one a core)
# TMEM_KERNEL_SOURCE another tarball than Debian's
# TMEM_MODULE_DIR    another module than guest-shims/tmem
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
patches=$here/../patches
fragment=$here/guest.config
module=${TMEM_MODULE_DIR:-$root/guest-shims/tmem}
abi=$root/abi/tmem_abi.h
tarball=${TMEM_KERNEL_SOURCE:-/usr/src/linux-source-6.1.tar.xz}
cache=${TMEM_CACHE:-$HOME/.cache/tmem}/guest-kernel
tree=$cache/tree
log=$cache/build.log
jobs=${TMEM_JOBS:-$(nproc)}
# Objects of a cold build, for the progress line only.
readonly objects_cold=1550
# Results that are kept.
readonly results_kept=6

say() { printf 'guest kernel: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# The module's files that belong into the kernel tree, relative to it.
module_files() {
  (cd "$module" && find . -type f \( -name '*.[ch]' -o -name Kconfig -o -name Kbuild \
    -o -name Makefile \) ! -name '*_test.*' ! -name '*.mod.c' -printf '%P\n' | sort)
}

# What identifies the source; hashing the tarball itself would take a second each time.
source_id() {
  if [[ -z ${TMEM_KERNEL_SOURCE:-} ]]; then
    dpkg-query -W -f '${Package} ${Version}\n' linux-source-6.1
  else
    sha256sum < "$tarball"
  fi
}

patches_id() { (cd "$patches" && sha256sum -- *.patch); }

key() {
  {
    source_id
    patches_id
    (cd "$module" && module_files | xargs sha256sum --)
    sha256sum < "$fragment"
    sha256sum < "$abi"
    sha256sum < "$here/build.sh"
    gcc --version | head -n 1
  } | sha256sum | cut -c 1-16
}

# Copies $1 to $2 if they differ, so that make sees only what changed.
refresh() {
  cmp -s "$1" "$2" && return
  mkdir -p "$(dirname "$2")"
  cp "$1" "$2"
}

# The unpacked source; complete when its stamp is there.
unpack() {
  local want
  want=$(source_id)
  [[ -f $tree/.tmem-source && $(<"$tree/.tmem-source") == "$want" ]] && return
  say "unpacking $tarball"
  rm -rf "$tree" "$tree.new"
  mkdir -p "$tree.new"
  tar -xf "$tarball" -C "$tree.new" --strip-components=1
  printf '%s\n' "$want" > "$tree.new/.tmem-source"
  mv "$tree.new" "$tree"
}

patched_files() { sed -n 's,^+++ b/,,p' "$@" | sort -u; }

# Applies the series to fresh copies of the files it touches, then brings those into the tree.
# Files that only an older series touched get back their original.
apply_series() {
  local want work files old f
  want=$(patches_id)
  [[ -f $tree/.tmem-series && $(<"$tree/.tmem-series") == "$want" ]] && return
  say "applying $(find "$patches" -name '*.patch' | wc -l) patches"
  work=$(mktemp -d "$cache/series.XXXXXX")
  files=$(patched_files "$patches"/*.patch)
  old=$(cat "$tree/.tmem-patched" 2> /dev/null || true)
  # Patterns, not names: files that the series adds are not in the tarball.
  printf '%s\n%s\n' "$files" "$old" | sed '/^$/d; s,^,*/,' | sort -u > "$work/names"
  mkdir "$work/src"
  tar -xf "$tarball" -C "$work/src" --strip-components=1 --wildcards -T "$work/names" \
    2> "$work/tar.log" || true
  for f in "$patches"/*.patch; do
    patch -d "$work/src" -p1 --batch --fuzz=0 < "$f" > "$work/patch.log" 2>&1 || {
      cat "$work/patch.log" >&2
      die "$(basename "$f") does not apply"
    }
  done
  # The lines that put the module into the tree.
  printf '\nsource "mm/tmem/Kconfig"\n' >> "$work/src/mm/Kconfig"
  # shellcheck disable=SC2016  # make's variable
  printf '\nobj-$(CONFIG_TMEM) += tmem/\n' >> "$work/src/mm/Makefile"
  while read -r f; do
    if [[ -f $work/src/$f ]]; then refresh "$work/src/$f" "$tree/$f"; else rm -f "$tree/$f"; fi
  done < <(printf '%s\n%s\n' "$files" "$old" | sed '/^$/d' | sort -u)
  printf '%s\n' "$files" > "$tree/.tmem-patched"
  printf '%s\n' "$want" > "$tree/.tmem-series"
  rm -rf "$work"
}

copy_module() {
  local f
  while read -r f; do refresh "$module/$f" "$tree/mm/tmem/$f"; done < <(module_files)
  refresh "$abi" "$tree/mm/tmem/abi/tmem_abi.h"
  # Sources that are no longer there.
  while read -r f; do
    [[ -f $module/$f || $f == abi/tmem_abi.h ]] || rm -f "$tree/mm/tmem/$f"
  done < <(cd "$tree/mm/tmem" && find . -type f \( -name '*.[ch]' -o -name Kconfig -o -name Kbuild \
    -o -name Makefile \) ! -name '*.mod.c' -printf '%P\n')
}

# Every option of the fragment must be in force: a typo or a missing dependency would go unseen.
configure() {
  local want option
  want=$({
    sha256sum < "$fragment"
    find "$tree/mm" -name Kconfig -exec sha256sum {} +
  } | sha256sum)
  [[ -f $tree/.config && -f $tree/.tmem-config && $(<"$tree/.tmem-config") == "$want" ]] && return
  say 'configuring'
  rm -f "$tree/.tmem-config"
  {
    make -C "$tree" -s tinyconfig
    (cd "$tree" && scripts/kconfig/merge_config.sh -m .config "$fragment")
    make -C "$tree" -s olddefconfig
  } > "$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die 'configuring failed'
  }
  while read -r option; do
    grep -qxF "$option" "$tree/.config" || die "$option of guest.config did not take effect"
  done < <(grep '^CONFIG_' "$fragment")
  printf '%s\n' "$want" > "$tree/.tmem-config"
}

compile() {
  local pid start count last=-1
  start=$SECONDS
  # No time, host or counter in the result: the same inputs give the same kernel.
  KBUILD_BUILD_USER=tmem KBUILD_BUILD_HOST=tmem KBUILD_BUILD_VERSION=1 \
    KBUILD_BUILD_TIMESTAMP='2026-01-01 00:00:00' \
    make -C "$tree" -j "$jobs" LOCALVERSION=-tmem all > "$log" 2>&1 &
  pid=$!
  # shellcheck disable=SC2064  # the process of now
  trap "kill $pid 2> /dev/null || true" EXIT
  while kill -0 "$pid" 2> /dev/null; do
    sleep 1
    (((SECONDS - start) % 5 == 0)) || continue
    count=$(grep -c '^  \(CC\|AS\) ' "$log" || true)
    ((count == last)) && ((SECONDS - start < 60)) && continue
    last=$count
    say "compiling, $count objects ($objects_cold in a cold build), $((SECONDS - start)) s"
  done
  trap - EXIT
  wait "$pid" || {
    grep -n -A 8 'error:\|Error\|undefined reference' "$log" | head -n 40 >&2
    die "failed, see $log"
  }
  say "compiled $(grep -c '^  \(CC\|AS\) ' "$log" || true) objects in $((SECONDS - start)) s"
}

# Puts the result into place in one step.
install_result() {
  local result=$1 new
  new=$(mktemp -d "$cache/result.XXXXXX")
  chmod 755 "$new"
  mkdir "$new/modules"
  cp "$tree/arch/x86/boot/bzImage" "$new/bzImage"
  cp "$tree/.config" "$new/config"
  strip --strip-debug -o "$new/vmlinux" "$tree/vmlinux"
  find "$tree" -name '*.ko' -exec cp -t "$new/modules" {} +
  mv -T "$new" "$result"
}

# Old results, and what interrupted builds left.
prune() {
  find "$cache" -maxdepth 1 \( -name 'series.*' -o -name 'result.*' -o -name tree.new \) \
    -exec rm -rf {} +
  find "$cache" -maxdepth 1 -type d -regex '.*/[0-9a-f]+' -printf '%T@ %p\n' | sort -rn |
    tail -n "+$((results_kept + 1))" | cut -d ' ' -f 2- | xargs -r rm -rf --
}

# Sets result.
build() {
  mkdir -p "$cache"
  exec 9> "$cache/lock"
  flock -n 9 || {
    say 'waiting for another build'
    flock 9
  }
  prune
  while true; do
    result=$cache/$(key)
    [[ -f $result/bzImage ]] && return
    unpack
    apply_series
    copy_module
    configure
    compile
    # A source edited meanwhile must not be kept under the old key.
    [[ $cache/$(key) == "$result" ]] && break
    say 'inputs changed meanwhile, building again'
  done
  install_result "$result"
  say "built $result"
}

main() {
  local action=${1:-build}
  [[ $action == build || $action == --print || $action == --key ]] ||
    die "usage: build.sh [--print|--key]"
  [[ -f $tarball ]] || die "$tarball is missing: apt-get install linux-source-6.1"
  [[ -f $module/Kconfig ]] || die "$module has no Kconfig"
  result=$cache/$(key)
  if [[ $action == --key ]]; then
    basename "$result"
    return
  fi
  [[ -f $result/bzImage ]] || build
  touch -c "$result"
  [[ $action != --print ]] || printf '%s\n' "$result"
}

main "$@"
