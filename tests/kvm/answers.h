// SPDX-License-Identifier: GPL-2.0-only
// What a micro-guest finds when it makes every hypercall that is not ours, to compare two kernels.
#ifndef TESTS_KVM_ANSWERS_H_
#define TESTS_KVM_ANSWERS_H_

#include <map>
#include <string>
#include <vector>

#include "tests/kvm/vm.h"

namespace tmem {

// From what was called, in which mode, to all that the guest got back.
using Answers = std::map<std::string, std::string>;

// Hypercalls 1-12 of Linux, unknown numbers, and in modes where it is not ours our own; in each
// CPU mode, with and without arguments, and with single-step. Takes a second or two in the lab.
Answers RecordAnswers(Vcpu& vcpu);

// A line for each that differs.
std::vector<std::string> Differences(const Answers& before, const Answers& after);

// Makes the vCPU one of a guest that uses Hyper-V's interface: its hypercalls mean something else.
void BecomeHyperv(Vcpu& vcpu);

}  // namespace tmem

#endif  // TESTS_KVM_ANSWERS_H_
