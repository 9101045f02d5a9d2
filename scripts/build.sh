#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Configures and builds one configuration into build/<config>.
#
#   scripts/build.sh release|asan|tsan|lint [target...]
#
#   release  GCC, -O2 -g: what is installed and measured
#   asan     Clang, address and undefined-behaviour sanitizers, fuzz targets
#   tsan     Clang, thread sanitizer
#   lint     Clang, only configured: compile commands for clang-tidy and the thread-safety analysis
#
# TMEM_BUILD_ROOT moves build/ elsewhere; TMEM_JOBS is the number of compilers at once.
set -euo pipefail

cd "$(dirname "$0")/.."
root="$PWD"
config="${1:?usage: scripts/build.sh release|asan|tsan|lint [target...]}"
shift

options=()
case "$config" in
  release) options=(-DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++) ;;
  asan) options=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DTMEM_SANITIZE=address) ;;
  tsan) options=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DTMEM_SANITIZE=thread) ;;
  lint) options=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++) ;;
  *)
    echo "build: unknown configuration '$config': want release, asan, tsan or lint" >&2
    exit 2
    ;;
esac

dir="${TMEM_BUILD_ROOT:-$root/build}/$config"
# One compiler cache for all clones: paths below the root are made relative.
export CCACHE_DIR="${TMEM_CACHE:-$HOME/.cache/tmem}/ccache"
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G

if [[ ! -f "$dir/build.ninja" ]]; then
  mkdir -p "$dir"
  if ! cmake -G Ninja -S "$root" -B "$dir" "${options[@]}" >"$dir/configure.log" 2>&1; then
    cat "$dir/configure.log" >&2
    exit 1
  fi
fi
if [[ "$config" == lint ]]; then
  # Re-configures when a CMakeLists.txt changed; compiles nothing.
  ninja -C "$dir" build.ninja >/dev/null
  exit 0
fi
exec ninja -C "$dir" -j "${TMEM_JOBS:-$(nproc)}" "$@"
