# SPDX-License-Identifier: GPL-2.0-only
"""Which files belong to the project, and of what kind each is."""

import os
import subprocess

SKIPPED_DIRS = {".git", "build", "out", "__pycache__"}
SCRIPT_FIRST_LINES = ("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh", "#!/usr/bin/env sh")


def project_files(root):
    """Paths relative to `root`: what git tracks or would track, or all files without git."""
    try:
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = []
        for directory, names, files in os.walk(root):
            names[:] = [name for name in names if name not in SKIPPED_DIRS]
            listed += [os.path.relpath(os.path.join(directory, name), root) for name in files]
    return sorted(path for path in set(listed) if os.path.isfile(os.path.join(root, path)))


def is_kernel_c(path):
    """Held by checkpatch: what the kernel compiles, or is written to be read beside it."""
    return path.endswith((".c", ".h")) and path.startswith(
        ("guest-shims/", "host-store/kvm_tmem/", "abi/"))


def is_cpp(path):
    """Held by clang-format: C++, and C of user space."""
    return path.endswith((".cc", ".h", ".c")) and not is_kernel_c(path)


def first_line(root, path):
    with open(os.path.join(root, path), "rb") as file:
        return file.readline(200).decode("utf-8", "replace").rstrip("\n")


def is_shell(root, path):
    return path.endswith(".sh") or (
        "." not in os.path.basename(path) and first_line(root, path).startswith(SCRIPT_FIRST_LINES))


def is_python(root, path):
    first = first_line(root, path)
    return path.endswith(".py") or (first.startswith("#!") and "python3" in first)
