#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Tests in real guests. Prints PASS, FAIL or SKIP a test; exits with 1 if one failed.
#
#   tests/lab/check.sh [--long] [--list] [name...]
set -euo pipefail
exec python3 "$(dirname "$0")/check.py" "$@"
