// SPDX-License-Identifier: GPL-2.0-only
// A VMM of a few lines over /dev/kvm: guest memory, and vCPUs that make one hypercall at a time.
#ifndef TESTS_KVM_VM_H_
#define TESTS_KVM_VM_H_

#include <linux/kvm.h>
#include <pthread.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Guest memory, as the tests use it. Below kFirstFree are page tables and code.
constexpr std::uint64_t kRamBytes = 16u << 20;
constexpr std::uint64_t kCodeAddress = 0x8000;
constexpr std::uint64_t kFirstFree = 0x10000;

// What a vCPU runs in. The descriptors are set from outside: the guest has no tables to load.
enum class CpuMode : std::uint8_t {
  kLong,
  kLongUser,  // CPL 3
  kCompat,    // 32-bit code under a 64-bit kernel
  kCompatUser,
  kProtected,  // 32-bit, no paging
  kProtectedUser,
};
constexpr CpuMode kCpuModes[] = {CpuMode::kLong,      CpuMode::kLongUser,
                                 CpuMode::kCompat,    CpuMode::kCompatUser,
                                 CpuMode::kProtected, CpuMode::kProtectedUser};
const char* ToString(CpuMode mode);

// One VM with kRamBytes of shared memory at address 0. Errors of the kernel are thrown
// (std::system_error): they end that test. Not thread-safe; the memory may be touched by anybody.
class Vm {
 public:
  Vm();
  ~Vm();
  Vm(const Vm&) = delete;
  Vm& operator=(const Vm&) = delete;

  std::byte* ram() const { return ram_; }
  int memory_fd() const { return memory_.get(); }
  int fd() const { return vm_.get(); }

  // Another slot: `bytes` of `memory` at `address`; fresh memory without it.
  void AddSlot(std::uint32_t slot, std::uint64_t address, std::uint64_t bytes,
               std::byte* memory = nullptr, std::uint32_t flags = 0);
  void RemoveSlot(std::uint32_t slot, std::uint64_t address);

  // Closes the VM's own fd; it lives on as long as a vCPU does.
  void CloseFd() { vm_.Close(); }

 private:
  UniqueFd kvm_;
  UniqueFd vm_;
  UniqueFd memory_;
  std::byte* ram_ = nullptr;
  std::vector<std::pair<void*, std::size_t>> more_memory_;
};

struct Call {
  std::uint64_t number = 0;
  std::uint64_t rbx = 0;
  std::uint64_t rcx = 0;
  std::uint64_t rdx = 0;
  std::uint64_t rsi = 0;
};

// How the guest came back.
struct CallOutcome {
  std::uint32_t exit_reason = 0;  // KVM_EXIT_IO after a call; KVM_EXIT_DEBUG with single-step
  kvm_regs regs{};                // as the guest left them
  std::uint64_t rax() const { return regs.rax; }
};

// One vCPU, run by one thread at a time. A call is two exits, 0.1 to 0.3 ms in the lab.
class Vcpu {
 public:
  explicit Vcpu(const Vm& vm, int id = 0);
  ~Vcpu();
  Vcpu(const Vcpu&) = delete;
  Vcpu& operator=(const Vcpu&) = delete;

  void SetMode(CpuMode mode);
  void SetCpuid(std::span<const kvm_cpuid_entry2> entries);
  void SetMsr(std::uint32_t index, std::uint64_t value);
  void SetSingleStep(bool on);
  // VMCALL rather than the instruction of this machine's maker.
  void UseForeignInstruction(bool on) { foreign_ = on; }

  CallOutcome Make(const Call& call);
  // The same `count` times inside the guest, which stops at the first answer that differs.
  // Returns how many were right.
  std::uint64_t MakeMany(const Call& call, std::uint64_t count, std::uint64_t expected);

  // From another thread, as a VMM's monitor does it: the run in `thread` returns as soon as it can.
  // MakeMany then comes back with what it has; Make throws.
  void Stop(pthread_t thread);

  // The longest that the thread was in the kernel since the last question.
  std::chrono::nanoseconds TakeLongestRun();
  int fd() const { return fd_.get(); }

 private:
  std::uint32_t Run();
  bool IsStopped() const;

  UniqueFd fd_;
  kvm_run* run_ = nullptr;
  std::size_t run_bytes_ = 0;
  std::chrono::nanoseconds longest_{0};
  bool foreign_ = false;
  bool single_step_ = false;
};

}  // namespace tmem

#endif  // TESTS_KVM_VM_H_
