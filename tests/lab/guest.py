# SPDX-License-Identifier: GPL-2.0-only
"""One guest: QEMU, its console log, the command channel, and what its vCPUs and disks have used."""

import dataclasses
import json
import os
import pathlib
import select
import socket
import subprocess
import time

from lab import console, initramfs, paths, processes, qmp

_BOOT_TIMEOUT_S = 120


class GuestError(Exception):
    """The guest did not do what it was asked; the text has the end of its console."""


class TimedOut(GuestError):
    """It stands still, or the machine is far too slow."""


@dataclasses.dataclass
class Usage:
    """What the guest has used since it started, as the host sees it."""

    cpu_ns: int
    disk_bytes: list


@dataclasses.dataclass
class Options:
    memory_mib: int = 256
    cpus: int = 1
    append: str = ""
    disks: list = dataclasses.field(default_factory=list)
    doorbell: object = None  # of doorbells; None: no daemon
    kernel: pathlib.Path | None = None
    programs: tuple = ("workload",)  # of ours, in the initial file system
    installed: tuple = ()  # programs of this machine, in the initial file system too
    reboots: bool = False  # a reset boots it again, rather than ending it
    ram_file: pathlib.Path | None = None  # in tmpfs, made by QEMU; its RAM
    ram_shared: bool = True
    ram_align: str = ""  # of its addresses in QEMU; 2M: huge pages of the file can be mapped
    machine: str = "pc"
    extra: tuple = ()  # more of QEMU's arguments
    cgroups: tuple = ()  # that QEMU runs in, besides the doorbell's
    modules: tuple = ()  # files that are loaded at boot, with the kernel's command line
    snapshots: bool = False  # save() and load() work: its disks and window can be saved
    label: str = ""  # what its QEMU calls itself, if not by the guest's name
    incoming: pathlib.Path | None = None  # goes on from this file of migrate_to(); does not boot
    spare_mib: int = 0  # memory that plug() may add


def accelerator():
    """`tcg`, unless TMEM_LAB_ACCEL says kvm, or says auto and a guest really boots under KVM."""
    wanted = os.environ.get("TMEM_LAB_ACCEL", "tcg")
    if wanted == "auto":
        return "kvm" if kvm_boots() else "tcg"
    return wanted


_kvm_answer = None


def kvm_boots():
    """Whether a guest really reaches its user space under KVM."""
    # A /dev/kvm that opens proves nothing: some cannot run a Linux guest.
    global _kvm_answer
    if _kvm_answer is None:
        _kvm_answer = False
        if os.access("/dev/kvm", os.R_OK | os.W_OK):
            try:
                with Guest("kvm-probe", Options(memory_mib=128), accel="kvm", boot_timeout_s=20):
                    _kvm_answer = True
            except GuestError:
                pass
    return _kvm_answer


class Guest(processes.Supervised):
    """A context manager: booted and ready inside `with`, gone and reaped after it."""

    def __init__(self, name, options, directory=None, accel=None, boot_timeout_s=_BOOT_TIMEOUT_S):
        super().__init__(directory)
        self.name = name
        self.options = options
        self._accel = accel
        self._boot_timeout_s = boot_timeout_s
        self._channel = None
        self._buffer = b""
        self._next_id = 0
        self._qmp = None
        self._vcpus = []
        self._plugged = 0
        self.boot_s = 0.0
        self.console_path = None

    # ---- life ----

    @property
    def _base(self):
        return self._directory / self.name

    def _start(self):
        begin = time.monotonic()
        base = self._base
        self.console_path = base.with_suffix(".console")
        listeners = {}
        for role in ["command", "monitor"]:
            listener = socket.socket(socket.AF_UNIX)
            listener.settimeout(30)
            listener.bind(str(base) + "." + role)
            listener.listen(1)
            listeners[role] = listener
        with open(base.with_suffix(".qemu"), "wb") as log:
            self._process = processes.start(
                self._arguments(base), stdout=subprocess.DEVNULL, stderr=log,
                cgroups=self._cgroups())
        connections = {}
        for role, listener in listeners.items():
            connections[role] = self._accept(listener, base)
            listener.close()
        self._channel = connections["command"]
        try:
            self._qmp = qmp.Qmp(connections["monitor"])
            self._vcpus = self._qmp.vcpu_threads()
        except qmp.QmpError as error:
            raise GuestError(f"{self.name}: {error}; {self._qemu_log(base)}") from None
        if self.options.incoming:
            self._await_running()
        else:
            self._await_ready()
        self.boot_s = time.monotonic() - begin

    def _cgroups(self):
        doorbell = self.options.doorbell
        if doorbell and doorbell.cgroup:
            return (*self.options.cgroups, doorbell.cgroup)
        return self.options.cgroups

    def _await_ready(self):
        deadline = time.monotonic() + self._boot_timeout_s
        while not self._read_line(deadline, "boot").startswith("@ready"):
            pass

    def _await_running(self):
        self._await_status("query-status", "running", ("inmigrate", "postmigrate", "paused"))

    def _await_status(self, query, wanted, others):
        deadline = time.monotonic() + self._boot_timeout_s
        while (status := self._monitor(query).get("status", "")) != wanted:
            if status not in others or time.monotonic() > deadline:
                raise GuestError(f"{self.name}: {query}: {status}; {self._qemu_log(self._base)}")
            time.sleep(0.02)

    def _accept(self, listener, base):
        deadline = time.monotonic() + self._boot_timeout_s
        while not select.select([listener], [], [], 0.2)[0]:
            if self._process.poll() is not None:
                raise GuestError(f"{self.name}: QEMU ended: {self._qemu_log(base)}")
            if time.monotonic() > deadline:
                raise GuestError(f"{self.name}: QEMU does not start")
        return listener.accept()[0]

    @staticmethod
    def _qemu_log(base):
        text = base.with_suffix(".qemu").read_text(encoding="utf-8", errors="replace")
        return text.strip()[-500:]

    def _arguments(self, base):
        options = self.options
        accel = self._accel or accelerator()
        accel_argument = "tcg,thread=multi,tb-size=128" if accel == "tcg" else accel
        # Warnings reach the console (level 4), the rest of the boot does not.
        # ramfs, so that the programs on the initial file system are never swapped.
        # No timer check: it fails when a busy host lets the guest wait at that moment.
        append = ("console=ttyS0 panic=-1 loglevel=5 rootfstype=ramfs no_timer_check "
                  + options.append)
        if options.doorbell:
            append += f" {options.doorbell.append}"
        kernel = options.kernel or paths.guest_kernel()
        arguments = ["qemu-system-x86_64", "-name", self._label(), "-nodefaults", "-no-user-config",
                     "-display", "none", "-machine", options.machine, "-accel", accel_argument,
                     "-cpu", "max" if accel == "tcg" else "host",
                     "-smp", options.cpus, "-m", self._memory(),
                     "-kernel", kernel,
                     "-initrd", initramfs.build(options.programs, options.installed,
                                                options.modules),
                     "-append", append,
                     "-chardev", f"file,id=console,path={self.console_path}",
                     "-serial", "chardev:console",
                     "-chardev", f"socket,id=command,path={base}.command",
                     "-serial", "chardev:command",
                     "-chardev", f"socket,id=monitor,path={base}.monitor",
                     "-mon", "chardev=monitor,mode=control"]
        if options.incoming:
            arguments += ["-incoming", f"exec:cat {options.incoming}"]
        if options.ram_file:
            shared = "on" if options.ram_shared else "off"
            align = f",align={options.ram_align}" if options.ram_align else ""
            arguments += ["-object", f"memory-backend-file,id=ram,size={options.memory_mib}M,"
                          f"mem-path={options.ram_file},share={shared}{align}",
                          "-machine", "memory-backend=ram"]
        arguments += options.extra
        if not options.reboots:
            arguments.append("-no-reboot")
        for number, disk in enumerate(options.disks):
            arguments += disk.qemu_arguments(number, options.snapshots)
        if options.doorbell:
            arguments += options.doorbell.qemu_arguments(options.snapshots)
        return arguments

    def _label(self):
        label = self.options.label
        return f"{label},process={label}" if label else self.name

    def _memory(self):
        options = self.options
        if not options.spare_mib:
            return options.memory_mib
        return f"{options.memory_mib}M,slots=32,maxmem={options.memory_mib + options.spare_mib}M"

    def _close(self):
        super()._close()
        if self._channel is not None:
            self._channel.close()

    # ---- commands ----

    def _read_line(self, deadline, what):
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._channel], [], [], max(0, left))[0] if left > 0 else []
            data = self._receive() if ready else None
            if not data:
                reason = f"timed out, {self.where()}" if not ready else "guest ended"
                raise (GuestError if ready else TimedOut)(
                    f"{self.name}: {what}: {reason}; console ends:\n{self.console()[-1500:]}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", errors="replace").rstrip("\r")

    def where(self):
        """What the vCPUs of a guest that does not answer are doing."""
        try:
            pairs = self._qmp.where()
        except (AttributeError, qmp.QmpError):
            return "no monitor"
        return "vCPUs at " + ", ".join(
            rip or ("halted" if halted == "1" else "running") for rip, halted in pairs)

    def _send(self, line, halfway=None):
        data = f"{line}\n".encode()
        try:
            if halfway is not None:
                self._channel.sendall(data[:len(data) // 2])
                data = data[len(data) // 2:]
                halfway()
            self._channel.sendall(data)
        except OSError as error:
            raise GuestError(f"{self.name}: the guest is gone: {error}") from None

    def _receive(self):
        try:
            return self._channel.recv(65536)
        except ConnectionError:
            return b""

    def run(self, command, timeout_s=60, on_event=None, check=True, halfway=None):
        """Runs a shell command; returns its output. Lines of JSON go to `on_event` as they come.

        A workload with sync=1 waits after each begin and end event until `on_event` is back.
        `halfway` is called when half of the command is sent.
        """
        self._next_id += 1
        self._send(f"{self._next_id} {command}", halfway)
        deadline = time.monotonic() + timeout_s
        self._await_begin(deadline, command)
        lines = []
        while True:
            line = self._read_line(deadline, command)
            if line.startswith(f"@end {self._next_id} "):
                code = int(line.split()[2])
                break
            if on_event is not None and line.startswith("{"):
                event = json.loads(line)
                on_event(event)
                if "sync=1" in command and event.get("event") in ("begin", "end"):
                    self._send("go")
            else:
                lines.append(line)
        output = "\n".join(lines)
        if check and code != 0:
            raise GuestError(f"{self.name}: `{command}` exited with {code}: {output[-800:]}")
        return output

    def _await_begin(self, deadline, command):
        # A guest that took another command than was sent would be silent for this one.
        while True:
            line = self._read_line(deadline, f"{command} (not begun)")
            if line == f"@begin {self._next_id}":
                return
            if line.startswith("@begin"):
                raise GuestError(f"{self.name}: sent `{self._next_id} {command}`, got `{line}`")

    def workload(self, command, timeout_s=120, on_event=None):
        """Runs a command of the workload program; returns its events."""
        events = []

        def take(event):
            events.append(event)
            if on_event is not None:
                on_event(event)

        output = self.run(f"workload {command}", timeout_s, take, check=False)
        errors = [event["error"] for event in events if "error" in event]
        if errors or not events:
            raise GuestError(f"{self.name}: workload {command}: {errors or output}")
        return events

    def read_files(self, directory):
        """Every file of a directory in sysfs, as {name: text}."""
        output = self.run(f"cd {directory} 2>/dev/null && grep -s '' * /dev/null", check=False)
        pairs = (line.partition(":") for line in output.splitlines())
        return {name: text for name, _, text in pairs if name}

    def counters(self):
        """The module's figures; empty without the module."""
        texts = self.read_files("/sys/kernel/tmem/stats")
        return {name: int(text, 0) for name, text in texts.items() if text.lstrip("-").isdigit()}

    def vmstat(self):
        pairs = (line.split() for line in self.run("cat /proc/vmstat").splitlines())
        return {name: int(value) for name, value in pairs}

    # ---- what happens to whole guests ----

    def reset(self):
        """As a press on the button: nobody in the guest is told. Returns once it is up again."""
        self._monitor("system_reset")
        self._await_ready()

    def reboot(self):
        """From inside, as the guest's user does it. Returns once it is up again."""
        self._next_id += 1
        self._send(f"{self._next_id} reboot -f")
        self._await_ready()

    def migrate_to(self, path):
        """The guest, as it runs, into a file; it stands still afterwards, for good."""
        self._monitor("migrate-set-parameters", **{"downtime-limit": 2000})
        self._monitor("migrate", uri=f"exec:cat > {path}")
        self._await_status("query-migrate", "completed", ("", "setup", "active", "device"))

    def migrate_without_bound(self):
        """As fast as the machine can, rather than QEMU's 128 MiB a second."""
        self._monitor("migrate-set-parameters", **{"max-bandwidth": 1 << 40})

    def balloon(self, size_bytes):
        """What virtio-balloon is to leave the guest; it takes its time."""
        self._monitor("balloon", value=size_bytes)

    def balloon_bytes(self):
        """What it leaves the guest now."""
        return self._monitor("query-balloon")["actual"]

    def plug(self, mib):
        """Memory more, of its spare_mib."""
        self._plugged += 1
        backend = f"plugged{self._plugged}"
        self._monitor("object-add", **{"qom-type": "memory-backend-ram", "id": backend,
                                       "size": mib << 20})
        self._monitor("device_add", driver="pc-dimm", id=f"{backend}-dimm", memdev=backend)

    def pause(self):
        self._monitor("stop")

    def resume(self):
        self._monitor("cont")

    def save(self, name):
        """A snapshot of memory, devices, window and disks; the guest goes on."""
        self._human_monitor(f"savevm {name}")

    def load(self, name):
        """Back to a snapshot; the guest goes on from there."""
        self._human_monitor(f"loadvm {name}")

    def _monitor(self, command, **arguments):
        try:
            return self._qmp.command(command, **arguments)
        except qmp.QmpError as error:
            raise GuestError(f"{self.name}: {error}") from None

    def _human_monitor(self, line):
        answer = self._monitor("human-monitor-command", **{"command-line": line})
        if answer.strip():
            raise GuestError(f"{self.name}: {line}: {answer.strip()}")

    def ask_monitor(self):
        """Two questions: one that QEMU answers by itself, one that the vCPUs stop for."""
        self._monitor("query-status")
        self._monitor("human-monitor-command", **{"command-line": "info registers -a"})

    # ---- what the host sees ----

    def usage(self):
        cpu_ns = sum(processes.thread_cpu_ns(self.pid, tid) for tid in self._vcpus)
        try:
            return Usage(cpu_ns, self._qmp.disk_bytes())
        except qmp.QmpError as error:
            raise GuestError(f"{self.name}: {error}") from None

    def console(self):
        try:
            return self.console_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def around_trouble(self):
        """The first line of trouble() with what stands around it."""
        return console.around_trouble(self.console())

    def trouble(self):
        """Lines of the console that a healthy kernel does not print."""
        return console.trouble(self.console())
