# SPDX-License-Identifier: GPL-2.0-only
"""Corpora: what the pages of a streamed file hold. Made from what a Debian machine has, cached."""

import dataclasses
import gzip
import json
import os
import pathlib
import random
import subprocess
import tarfile

from lab import disks, initramfs, paths

NAMES = ["text", "binaries", "zero", "random"]
PAGE_BYTES = 4096
_PIECE_BYTES = 1 << 20
# Part of the names in the cache: to be raised when what a corpus holds changes.
_VERSION = 1


@dataclasses.dataclass
class Corpus:
    name: str
    path: pathlib.Path  # `bytes` long
    sums: pathlib.Path  # 8 bytes a page, as the guest's workload program computes them
    bytes: int
    sources: dict  # how many bytes came from where


def _man_and_doc_files():
    man = pathlib.Path("/usr/share/man")
    doc = pathlib.Path("/usr/share/doc")
    yield from ((path, "manual pages") for path in sorted(man.glob("man*/*")))
    yield from ((path, "documentation") for path in sorted(doc.rglob("*")))
    yield from ((path, "manual pages") for path in sorted(man.glob("[a-z][a-z]*/man*/*")))


def _read_text(path):
    if path.is_symlink() or not path.is_file():
        return b""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, gzip.BadGzipFile):
        return b""
    # Archives and pictures among the documentation are not text.
    return b"" if b"\0" in data[:4096] else data


def _kernel_source_texts():
    # Systems without manual pages (containers) still have the source that the guest kernel needs.
    archive = pathlib.Path("/usr/src/linux-source-6.1.tar.xz")
    if not archive.exists():
        return
    with tarfile.open(archive, "r|xz") as source:
        for member in source:
            if member.isfile() and member.name.endswith((".rst", ".txt", ".c", ".h")):
                yield source.extractfile(member).read(), "kernel source"


def _texts():
    for path, origin in _man_and_doc_files():
        yield _read_text(path), origin
    yield from _kernel_source_texts()


def _binaries():
    # Each file begins on a page, as in the page cache of a machine that runs it. Some drivers are
    # one file under many names.
    seen = set()
    for directory in ["/usr/lib/x86_64-linux-gnu", "/usr/bin", "/usr/sbin", "/usr/lib"]:
        for path in sorted(pathlib.Path(directory).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.suffix in (".o", ".a"):
                continue
            status = path.stat()
            if status.st_size < PAGE_BYTES or status.st_ino in seen:
                continue
            seen.add(status.st_ino)
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
                data = b"\x7fELF" + file.read()
            yield data + b"\0" * (-len(data) % PAGE_BYTES), directory


def _zero():
    while True:
        yield b"\0" * _PIECE_BYTES, "zeros"


def _random():
    generator = random.Random(1)
    while True:
        yield generator.randbytes(_PIECE_BYTES), "random bytes, seed 1"


_PIECES = {"text": _texts, "binaries": _binaries, "zero": _zero, "random": _random}


def _write(name, size_bytes, path):
    sources = {}
    written = 0
    with open(path, "wb") as out:
        while written < size_bytes:
            before = written
            for data, origin in _PIECES[name]():
                data = data[: size_bytes - written]
                out.write(data)
                written += len(data)
                sources[origin] = sources.get(origin, 0) + len(data)
                if written == size_bytes:
                    break
            if written == before:
                raise paths.Missing(f"nothing on this machine to build corpus {name} from")
            if written < size_bytes:
                sources["repeated from the start"] = size_bytes - written
    return sources


def build(name, size_bytes):
    """The corpus of this name and size, from the cache if it is there."""
    directory = paths.cache_dir("corpora")
    stem = f"{name}-v{_VERSION}-{size_bytes // PAGE_BYTES}"
    path, sums, note = (directory / f"{stem}.{suffix}" for suffix in ["bin", "sums", "json"])
    if not note.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        sources = _write(name, size_bytes, partial)
        partial.rename(path)
        subprocess.run([initramfs.workload(), "sums", f"file={path}", f"out={sums}"],
                       check=True, stdout=subprocess.DEVNULL)
        note.write_text(json.dumps(sources), encoding="utf-8")
    return Corpus(name, path, sums, size_bytes, json.loads(note.read_text(encoding="utf-8")))


def make_image(corpus, path):
    """An ext4 image with the corpus as file `data`, every block of it allocated.

    mke2fs -d leaves holes for blocks of zeros, so it gets a file without any, and the corpus is
    then written over that file's extents.
    """
    stand_in = path.with_suffix(".stand-in")
    with open(stand_in, "wb") as file:
        for _ in range(0, corpus.bytes, _PIECE_BYTES):
            file.write(b"\xff" * _PIECE_BYTES)
        file.truncate(corpus.bytes)
    disks.make_file_system(path, "ext4", corpus.bytes * 103 // 100 + 48 * disks.MIB,
                           {"data": stand_in})
    stand_in.unlink()
    dump = subprocess.run(["debugfs", "-R", "dump_extents -l /data", path], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    with open(path, "r+b") as image, open(corpus.path, "rb") as data:
        for logical, physical, blocks in _extents(dump):
            data.seek(logical * PAGE_BYTES)
            image.seek(physical * PAGE_BYTES)
            image.write(data.read(blocks * PAGE_BYTES))
    return path


def _extents(dump):
    """Lines like ` 1/ 1   1/  3      0 -  32767   34304 -  67071  32768 `."""
    for line in dump.splitlines()[1:]:
        numbers = line.replace("/", " ").replace("-", " ").split()
        if len(numbers) >= 9:
            yield int(numbers[4]), int(numbers[6]), int(numbers[8])
