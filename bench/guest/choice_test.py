#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of what `make demo` takes: the decision, and what each trial says without KVM or module."""

import contextlib
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import choice  # noqa: E402
from lab import guest as lab_guest  # noqa: E402
from lab import host as lab_host  # noqa: E402

NO_KVM = "there is no /dev/kvm"
NO_MODULE = "the module kvm_tmem is not loaded"


class TheDecision(unittest.TestCase):
    TABLE = [
        # KVM       hypercall  doorbell     accelerator
        ("",        "",        "hypercall", "kvm"),
        ("",        NO_MODULE, "ivshmem",   "kvm"),
        (NO_KVM,    NO_MODULE, "ivshmem",   "tcg"),
        (NO_KVM,    "",        "ivshmem",   "tcg"),  # loaded on a machine whose KVM runs nothing
    ]

    def test_the_best_that_works_is_taken(self):
        for kvm, hypercall, doorbell, accelerator in self.TABLE:
            with self.subTest(kvm=kvm, hypercall=hypercall):
                taken = choice.choose(lambda kvm=kvm: kvm, lambda hypercall=hypercall: hypercall)
                self.assertEqual((taken.doorbell, taken.accelerator), (doorbell, accelerator))

    def test_it_says_which_and_why(self):
        for kvm, hypercall, doorbell, _ in self.TABLE:
            with self.subTest(kvm=kvm, hypercall=hypercall):
                text = str(choice.choose(lambda kvm=kvm: kvm,
                                         lambda hypercall=hypercall: hypercall))
                self.assertIn(doorbell, text)
                self.assertIn(kvm or hypercall or "kvm_tmem is loaded", text)

    def test_the_hypercall_is_not_tried_without_kvm(self):
        choice.choose(lambda: NO_KVM, lambda: self.fail("tried"))

    def test_apply_hands_it_to_the_lab(self):
        with mock.patch.dict(os.environ):
            choice.Choice("ivshmem", "kvm", "").apply()
            self.assertEqual(os.environ["TMEM_LAB_ACCEL"], "kvm")
            self.assertEqual(os.environ["TMEM_LAB_DOORBELL"], "ivshmem")


class TheTrials(unittest.TestCase):
    """On a made-up machine: device files are plain files, and no guest is started."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kvm, module = self.directory / "kvm", self.directory / "kvm_tmem"
        kvm.touch()
        module.touch()
        stack.enter_context(mock.patch.dict(os.environ))
        for name in ["TMEM_LAB_ACCEL", "TMEM_LAB_DOORBELL"]:
            os.environ.pop(name, None)
        stack.enter_context(mock.patch.object(choice, "_KVM", kvm))
        stack.enter_context(mock.patch.object(choice.doorbells, "DEVICE", module))
        self.boots = stack.enter_context(mock.patch.object(lab_guest, "kvm_boots"))
        self.boots.return_value = True
        self.register = stack.enter_context(mock.patch.object(choice, "_register_one"))
        self.starts = stack.enter_context(mock.patch("subprocess.Popen"))

    def taken(self):
        found = choice.best()
        self.starts.assert_not_called()  # above all no modprobe
        return found.doorbell, found.accelerator, found.why

    def test_all_works(self):
        self.assertEqual(self.taken()[:2], ("hypercall", "kvm"))

    def test_no_kvm_device(self):
        (self.directory / "kvm").unlink()
        doorbell, accelerator, why = self.taken()
        self.assertEqual((doorbell, accelerator), ("ivshmem", "tcg"))
        self.assertIn("there is no", why)
        self.boots.assert_not_called()

    def test_a_kvm_that_opens_and_runs_nothing(self):
        self.boots.return_value = False
        doorbell, accelerator, why = self.taken()
        self.assertEqual((doorbell, accelerator), ("ivshmem", "tcg"))
        self.assertIn("no guest boots", why)
        self.register.assert_not_called()

    def test_module_not_loaded(self):
        (self.directory / "kvm_tmem").unlink()
        doorbell, accelerator, why = self.taken()
        self.assertEqual((doorbell, accelerator), ("ivshmem", "kvm"))
        self.assertIn("not loaded", why)

    def test_module_loaded_but_serving_another_daemon(self):
        self.register.side_effect = lab_host.HostError("in use\nand more")
        doorbell, accelerator, why = self.taken()
        self.assertEqual((doorbell, accelerator), ("ivshmem", "kvm"))
        self.assertIn("in use", why)
        self.assertNotIn("more", why)

    def test_devices_of_somebody_else(self):
        with mock.patch("os.access", return_value=False):
            self.assertIn("may not open", self.taken()[2])
            self.boots.assert_not_called()

    def test_the_user_decides(self):
        os.environ["TMEM_LAB_DOORBELL"] = "ivshmem"
        self.assertEqual(self.taken()[:2], ("ivshmem", "kvm"))
        os.environ["TMEM_LAB_ACCEL"] = "tcg"
        self.assertEqual(self.taken()[:2], ("ivshmem", "tcg"))


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
