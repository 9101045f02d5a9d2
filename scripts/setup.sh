#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs what scripts/packages.txt lists; does nothing, quickly, when all of it is there.
#
#   scripts/setup.sh            install what is missing (needs root, or sudo)
#   scripts/setup.sh --missing  only print what is missing; exit 1 if anything is
set -euo pipefail

list="$(dirname "$0")/packages.txt"
mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]].*//' -e '/^$/d' "$list")

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system; install these by hand: ${wanted[*]}" >&2
  exit 1
fi

# dpkg-query knows one exit code for "some unknown"; its output says which are installed.
installed="$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)"
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done

if ((${#missing[@]} == 0)); then
  echo "setup: all ${#wanted[@]} packages are installed"
  exit 0
fi
if [[ "${1:-}" == --missing ]]; then
  printf '%s\n' "${missing[@]}"
  exit 1
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q
  -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=300)
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
if ! "${apt[@]}" update; then
  echo "setup: apt-get update failed; is the package mirror reachable?" >&2
  exit 1
fi
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get could not install: ${missing[*]}" >&2
  echo "setup: tmem is built on Debian 12 (bookworm); other releases may lack some of them" >&2
  exit 1
fi
