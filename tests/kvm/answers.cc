// SPDX-License-Identifier: GPL-2.0-only
// Records what hypercalls answer.
#include "tests/kvm/answers.h"

#include <cstdint>
#include <iomanip>
#include <sstream>

#include "abi/tmem_abi.h"

namespace tmem {
namespace {

// Linux has 1-12 (kvm_para.h); the others are near ours, near nothing, or ours with more bits.
constexpr std::uint64_t kNumbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      6,
                                      7,
                                      8,
                                      9,
                                      10,
                                      11,
                                      12,
                                      13,
                                      100,
                                      TMEM_HYPERCALL_DEFAULT - 1,
                                      TMEM_HYPERCALL_DEFAULT + 1,
                                      TMEM_HYPERCALL_DEFAULT | 1ull << 32,
                                      0xfffffffffffffc18,
                                      ~0ull};

constexpr Call kArguments[] = {
    {0, 0, 0, 0, 0},
    {0, 0x9000, 0x10, 0x1, 0x2},
    {0, ~0ull, ~0ull, ~0ull, ~0ull},
};

std::string Describe(const CallOutcome& outcome) {
  const kvm_regs& regs = outcome.regs;
  std::ostringstream text;
  text << "exit " << outcome.exit_reason << std::hex;
  for (const auto value : {regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp,
                           regs.rsp, regs.r8, regs.r9, regs.r10, regs.r15, regs.rip, regs.rflags}) {
    text << ' ' << value;
  }
  return text.str();
}

std::string Name(CpuMode mode, bool single_step, const Call& call) {
  std::ostringstream text;
  text << ToString(mode) << (single_step ? ", single-step" : "") << std::hex << ": number 0x"
       << call.number << ", rbx 0x" << call.rbx;
  return text.str();
}

}  // namespace

Answers RecordAnswers(Vcpu& vcpu) {
  Answers answers;
  const auto record = [&](CpuMode mode, bool single_step, Call call, std::uint64_t number) {
    call.number = number;
    answers[Name(mode, single_step, call)] = Describe(vcpu.Make(call));
  };
  for (const CpuMode mode : kCpuModes) {
    vcpu.SetMode(mode);
    for (const bool single_step : {false, true}) {
      vcpu.SetSingleStep(single_step);
      for (const Call& arguments : kArguments) {
        for (const std::uint64_t number : kNumbers) record(mode, single_step, arguments, number);
        // Ours is ours in 64-bit code at CPL 0 only.
        if (mode != CpuMode::kLong) record(mode, single_step, arguments, TMEM_HYPERCALL_DEFAULT);
      }
    }
    vcpu.SetSingleStep(false);
  }
  vcpu.SetMode(CpuMode::kLong);
  return answers;
}

std::vector<std::string> Differences(const Answers& before, const Answers& after) {
  std::vector<std::string> lines;
  if (before.size() != after.size()) lines.emplace_back("not as many answers");
  for (const auto& [name, was] : before) {
    const auto found = after.find(name);
    const std::string is = found == after.end() ? "nothing" : found->second;
    if (was != is) lines.push_back(name + "\n  was " + was + "\n  is  " + is);
  }
  return lines;
}

void BecomeHyperv(Vcpu& vcpu) {
  kvm_cpuid_entry2 leaves[5] = {};
  leaves[0].function = 0x40000000;
  leaves[0].eax = 0x40000005;
  leaves[0].ebx = 0x7263694d;  // "Microsoft Hv"
  leaves[0].ecx = 0x666f736f;
  leaves[0].edx = 0x76482074;
  leaves[1].function = 0x40000001;
  leaves[1].eax = 0x31237648;  // "Hv#1"
  leaves[2].function = 0x40000003;
  leaves[2].eax = 1u << 5;  // the hypercall registers
  leaves[3].function = 0x40000004;
  leaves[4].function = 0x40000005;
  vcpu.SetCpuid(leaves);
  constexpr std::uint32_t kGuestOsId = 0x40000000;
  vcpu.SetMsr(kGuestOsId, 1);
}

}  // namespace tmem
