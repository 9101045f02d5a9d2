# SPDX-License-Identifier: GPL-2.0-only
"""The lab's KVM host (L1): Debian's stock kernel under TCG, which emulates AMD's SVM.

It runs one job, on the files of this machine: its root is ours, read-only, with a layer in memory
over it that ends with it. Only `run/lab` in it is a directory here, to hand things over.
"""

import contextlib
import dataclasses
import os
import pathlib
import select
import shlex
import socket
import subprocess
import time

from lab import console, host_kernel, initramfs, paths, processes

_MODULES = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "kvm-amd"]
_PORTS = ("out", "err", "status", "pulse")
# An idle L1 was seen halted with no timer due, as if QEMU had lost an interrupt (README.md). Any
# other one wakes it.
_PULSE_S = 0.5
# What a command here may be told by its environment.
_ENVIRONMENT = ("TMEM_", "TMEMD", "TMEMCTL", "LANG", "LC_", "HOME")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# A busy machine lets L1 wait for many seconds; the kernel must not take that for its own fault.
_APPEND = ("console=ttyS0 panic=-1 loglevel=5 rootfstype=ramfs no_timer_check mitigations=off"
           " tsc=reliable watchdog_thresh=30 rcupdate.rcu_cpu_stall_timeout=60")


class L1Error(Exception):
    """The KVM host did not do what it should; the text has the end of its console."""


@dataclasses.dataclass
class Options:
    memory_mib: int = 3072
    cpus: int = 1
    append: str = ""
    modules: tuple = ()  # files, loaded before the command, each with its parameters after blanks
    debug: str = ""  # more of QEMU's arguments
    assignable: bool = False  # an IOMMU, and a PCI device that nobody uses
    disks: tuple = ()  # of lab.disks: /dev/vda, ...


class L1(processes.Supervised):
    """A context manager: `with L1(...) as host: host.run(command)`; one command a boot."""

    def __init__(self, options=Options(), directory=None):
        super().__init__(directory)
        self._options = options
        self._connections = {}
        self._buffer = b""
        self._begin = 0
        self.boot_s = 0.0

    @property
    def share(self):
        """The directory that is /run/lab in L1."""
        return self._directory / "share"

    def _start(self):
        self.share.mkdir()

    def run(self, command, timeout_s, out, err, environment=()):
        """Boots, runs the command here, copies its output; returns its exit code."""
        self._write_job(command, environment)
        self._begin = time.monotonic()
        listeners = {}
        for port in _PORTS:
            listeners[port] = socket.socket(socket.AF_UNIX)
            listeners[port].bind(str(self._directory / port))
            listeners[port].listen(1)
        with open(self._directory / "qemu", "wb") as log:
            self._process = processes.start(self._arguments(), stdout=log, stderr=log)
        for port, listener in listeners.items():
            with contextlib.closing(listener):
                self._connections[port] = self._accept(listener)
        return self._serve({"out": out, "err": err}, timeout_s)

    def _accept(self, listener):
        deadline = time.monotonic() + 30
        while not select.select([listener], [], [], 0.1)[0]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._directory / "qemu").read_text(encoding="utf-8", errors="replace")
                raise L1Error(f"L1: QEMU did not start: {text.strip()[-500:]}")
        return listener.accept()[0]

    def _arguments(self):
        options = self._options
        kernel = host_kernel.kernel()
        thread = "single" if options.cpus == 1 else "multi"
        arguments = [
            "qemu-system-x86_64", "-name", "lab-host", "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot",
            "-machine", "q35" if options.assignable else "pc",
            "-accel", f"tcg,thread={thread},tb-size=512",
            # With XSAVE, L2 warns about its state's size; with AVX but no XSAVE, it crashes.
            "-cpu", "EPYC,-xsave,-avx,-avx2,-fma,-f16c",
            "-smp", options.cpus, "-m", options.memory_mib,
            "-kernel", kernel.vmlinux, "-initrd", _initramfs(kernel, options.disks),
            "-append", f"{_APPEND} {options.append}"
                       f"{' intel_iommu=on' if options.assignable else ''}",
            "-chardev", f"file,id=console,path={self._directory}/console",
            "-serial", "chardev:console",
            "-device", "virtio-serial-pci",
            "-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,"
                       "multidevs=remap",
            "-virtfs", f"local,path={self.share},mount_tag=job,security_model=none"]
        for number, port in enumerate(_PORTS, 1):
            arguments += ["-chardev", f"socket,id={port},path={self._directory}/{port}",
                          "-device", f"virtserialport,chardev={port},nr={number},name={port}"]
        if options.assignable:
            arguments += ["-device", "intel-iommu", "-device", "pci-testdev"]
        for number, disk in enumerate(options.disks):
            arguments += disk.qemu_arguments(number)
        return arguments + shlex.split(options.debug)

    def _write_job(self, command, environment):
        kernel = host_kernel.kernel()
        kept = {name: value for name, value in os.environ.items()
                if name.startswith(_ENVIRONMENT)}
        kept |= {"PATH": _PATH, "TMPDIR": "/run/tmp", "TMEM_IN_L1": "1", **dict(environment)}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in kept.items()]
        for module in self._options.modules:
            file, *parameters = shlex.split(module)
            lines.append(shlex.join(["insmod", str(pathlib.Path(file).resolve()), *parameters])
                         + " || exit 125")
        lines += [f"cd {shlex.quote(os.getcwd())} || exit 125",
                  shlex.join(command), "code=$?", *kernel.last_steps, "exit $code"]
        (self.share / "job").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.share / "modules").write_text(str(kernel.modules), encoding="utf-8")

    def _serve(self, sinks, timeout_s):
        """Copies what the ports bring until the command has ended."""
        deadline = self._begin + host_kernel.kernel().boot_timeout_s
        by_socket = {connection: port for port, connection in self._connections.items()
                     if port != "pulse"}
        code = None
        while by_socket:
            left = deadline - time.monotonic()
            ready = select.select(list(by_socket), [], [], max(0, min(left, _PULSE_S)))[0]
            if not ready and left > 0:
                self._pulse()
                continue
            if not ready:
                what = "the command did not end" if self.boot_s else "it did not boot"
                raise L1Error(f"L1: {what} in time; its console ends:\n{self.console()[-3000:]}")
            for connection in ready:
                data = _receive(connection)
                port = by_socket[connection]
                if not data:
                    del by_socket[connection]
                elif port != "status":
                    sinks[port].write(data)
                    sinks[port].flush()
                for line in self._status_lines(data) if port == "status" else []:
                    word, _, rest = line.partition(" ")
                    if word == "@ready":
                        self.boot_s = time.monotonic() - self._begin
                        deadline = time.monotonic() + timeout_s
                    elif word == "@exit":
                        code = int(rest)
                        deadline = time.monotonic() + 30  # to switch itself off
        if code is None:
            raise L1Error(f"L1 ended; its console ends:\n{self.console()[-3000:]}")
        return code

    def _pulse(self):
        try:
            self._connections["pulse"].send(b".", socket.MSG_DONTWAIT)
        except OSError:  # It is about to end, or does not read yet.
            pass

    def _status_lines(self, data):
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [line.decode("utf-8", errors="replace").strip() for line in lines]

    def _close(self):
        super()._close()
        for connection in self._connections.values():
            connection.close()

    def console(self):
        try:
            return (self._directory / "console").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def trouble(self):
        return console.trouble(self.console())

    def around_trouble(self):
        return console.around_trouble(self.console())


def _receive(connection):
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


def _initramfs(kernel, disks):
    files = {f"modules/{number:02}-{file.name}": file.read_bytes()
             for number, file in enumerate(kernel.load_order(
                 _MODULES + (["virtio_blk"] if disks else [])))}
    directories = ["bin", "dev", "proc", "sys", "modules", "lower", "upper", "new"]
    applets = ["cat", "chroot", "echo", "hostname", "insmod", "mkdir", "mount", "poweroff", "sh",
               "uname", "["]
    return initramfs.pack("l1", paths.LAB / "host" / "init", files, directories, applets)
