// SPDX-License-Identifier: GPL-2.0-only
// The VMM of the micro-guest.
#include "tests/kvm/vm.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace tmem {
namespace {

constexpr std::uint64_t kTables = 0x2000;
constexpr std::uint64_t kPage = 4096;

// The guest's code. `out` to an immediate port is the same in every mode and changes no register.
constexpr std::uint8_t kDonePort = 0x10;
constexpr std::uint8_t kWrongPort = 0x11;
// Each piece in a cache line of its own.
constexpr std::uint64_t kVmmcallOffset = 0;
constexpr std::uint64_t kVmcallOffset = 64;
constexpr std::uint64_t kLoopOffset = 128;
constexpr std::uint8_t kVmmcall[] = {0x0f, 0x01, 0xd9, 0xe6, kDonePort};
constexpr std::uint8_t kVmcall[] = {0x0f, 0x01, 0xc1, 0xe6, kDonePort};
// again: mov %r8,%rax; vmmcall; cmp %r9,%rax; jne wrong; dec %r10; jnz again; out; wrong: out
constexpr std::uint8_t kLoop[] = {0x4c, 0x89, 0xc0, 0x0f,      0x01, 0xd9,      0x4c,
                                  0x39, 0xc8, 0x75, 0x07,      0x49, 0xff,      0xca,
                                  0x75, 0xf0, 0xe6, kDonePort, 0xe6, kWrongPort};
constexpr std::size_t kLoopInstruction = 3;

constexpr std::uint64_t kEferLong = 0x500;  // LME, LMA
constexpr std::uint64_t kEferSvm = 0x1000;
constexpr std::uint64_t kCr0Protected = 0x31;  // PE, ET, NE
constexpr std::uint64_t kCr0Paging = 1ull << 31;
constexpr std::uint64_t kCr4Pae = 0x20;
constexpr std::uint64_t kRflags = 0x3002;  // IOPL 3, so that `out` works at CPL 3

// In C++ linux/kvm.h gives structs that end in an array a size of 12, so that neither their ioctl
// numbers nor their arrays are where the kernel expects them.
constexpr std::size_t kHeadBytes = 8;  // a count, and padding
constexpr unsigned long kSetCpuid = _IOC(_IOC_WRITE, KVMIO, 0x90, kHeadBytes);
constexpr unsigned long kSetMsrs = _IOC(_IOC_WRITE, KVMIO, 0x89, kHeadBytes);

int Checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

bool IsIntel() {
  static const bool intel = [] {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      if (line.find("GenuineIntel") != std::string::npos) return true;
    }
    return false;
  }();
  return intel;
}

void* Map(std::size_t bytes, int fd) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return memory;
}

// Identity for the first GiB, in pages of 2 MiB that CPL 3 may use too.
void WritePageTables(std::byte* ram) {
  auto* tables = reinterpret_cast<std::uint64_t*>(ram + kTables);
  tables[0] = (kTables + kPage) | 7;
  tables[512] = (kTables + 2 * kPage) | 7;
  for (std::uint64_t i = 0; i < 512; ++i) tables[1024 + i] = (i << 21) | 0x87;
}

kvm_segment Segment(std::uint16_t selector, std::uint8_t type, std::uint8_t dpl, bool is_long) {
  kvm_segment segment{};
  segment.limit = 0xffffffff;
  segment.selector = static_cast<std::uint16_t>(selector | dpl);
  segment.type = type;
  segment.present = 1;
  segment.dpl = dpl;
  segment.db = is_long ? 0 : 1;
  segment.s = 1;
  segment.l = is_long ? 1 : 0;
  segment.g = 1;
  return segment;
}

}  // namespace

const char* ToString(CpuMode mode) {
  switch (mode) {
    case CpuMode::kLong: return "64-bit";
    case CpuMode::kLongUser: return "64-bit, CPL 3";
    case CpuMode::kCompat: return "compatibility";
    case CpuMode::kCompatUser: return "compatibility, CPL 3";
    case CpuMode::kProtected: return "32-bit";
    case CpuMode::kProtectedUser: return "32-bit, CPL 3";
  }
  return "?";
}

Vm::Vm()
    : kvm_(Checked(::open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm")),
      vm_(Checked(::ioctl(kvm_.get(), KVM_CREATE_VM, 0), "KVM_CREATE_VM")),
      memory_(Checked(::memfd_create("micro-guest", MFD_CLOEXEC), "memfd_create")) {
  Checked(::ftruncate(memory_.get(), static_cast<off_t>(kRamBytes)), "ftruncate");
  ram_ = static_cast<std::byte*>(Map(kRamBytes, memory_.get()));
  WritePageTables(ram_);
  std::memcpy(ram_ + kCodeAddress + kVmmcallOffset, kVmmcall, sizeof kVmmcall);
  std::memcpy(ram_ + kCodeAddress + kVmcallOffset, kVmcall, sizeof kVmcall);
  std::memcpy(ram_ + kCodeAddress + kLoopOffset, kLoop, sizeof kLoop);
  if (IsIntel()) {
    std::memcpy(ram_ + kCodeAddress + kLoopOffset + kLoopInstruction, kVmcall, 3);
    Checked(::ioctl(vm_.get(), KVM_SET_TSS_ADDR, 0xfffbd000), "KVM_SET_TSS_ADDR");
  }
  kvm_userspace_memory_region region{};
  region.memory_size = kRamBytes;
  region.userspace_addr = reinterpret_cast<std::uintptr_t>(ram_);
  Checked(::ioctl(vm_.get(), KVM_SET_USER_MEMORY_REGION, &region), "memory slot");
}

Vm::~Vm() {
  vm_.Close();
  if (ram_ != nullptr) ::munmap(ram_, kRamBytes);
  for (const auto& [memory, bytes] : more_memory_) ::munmap(memory, bytes);
}

void Vm::AddSlot(std::uint32_t slot, std::uint64_t address, std::uint64_t bytes, std::byte* memory,
                 std::uint32_t flags) {
  if (memory == nullptr) {
    memory = static_cast<std::byte*>(Map(bytes, -1));
    more_memory_.emplace_back(memory, bytes);
  }
  kvm_userspace_memory_region region{};
  region.slot = slot;
  region.flags = flags;
  region.guest_phys_addr = address;
  region.memory_size = bytes;
  region.userspace_addr = reinterpret_cast<std::uintptr_t>(memory);
  Checked(::ioctl(vm_.get(), KVM_SET_USER_MEMORY_REGION, &region), "memory slot");
}

void Vm::RemoveSlot(std::uint32_t slot, std::uint64_t address) {
  kvm_userspace_memory_region region{};
  region.slot = slot;
  region.guest_phys_addr = address;
  Checked(::ioctl(vm_.get(), KVM_SET_USER_MEMORY_REGION, &region), "memory slot");
}

Vcpu::Vcpu(const Vm& vm, int id)
    : fd_(Checked(::ioctl(vm.fd(), KVM_CREATE_VCPU, id), "KVM_CREATE_VCPU")) {
  const UniqueFd kvm(Checked(::open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm"));
  run_bytes_ = static_cast<std::size_t>(
      Checked(::ioctl(kvm.get(), KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE"));
  run_ = static_cast<kvm_run*>(Map(run_bytes_, fd_.get()));
  // Registers go in and out with the run itself.
  run_->kvm_valid_regs = KVM_SYNC_X86_REGS;
  SetMode(CpuMode::kLong);
}

Vcpu::~Vcpu() {
  if (run_ != nullptr) ::munmap(run_, run_bytes_);
}

void Vcpu::SetMode(CpuMode mode) {
  const bool user =
      mode == CpuMode::kLongUser || mode == CpuMode::kCompatUser || mode == CpuMode::kProtectedUser;
  const bool paging = mode != CpuMode::kProtected && mode != CpuMode::kProtectedUser;
  const bool is_long = mode == CpuMode::kLong || mode == CpuMode::kLongUser;
  const auto dpl = static_cast<std::uint8_t>(user ? 3 : 0);
  kvm_sregs sregs{};
  Checked(::ioctl(fd_.get(), KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
  sregs.cs = Segment(0x8, 11, dpl, is_long);
  sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = Segment(0x10, 3, dpl, false);
  sregs.cr0 = kCr0Protected | (paging ? kCr0Paging : 0);
  sregs.cr3 = paging ? kTables : 0;
  sregs.cr4 = paging ? kCr4Pae : 0;
  sregs.efer = (sregs.efer & kEferSvm) | (paging ? kEferLong : 0);
  Checked(::ioctl(fd_.get(), KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
}

void Vcpu::SetCpuid(std::span<const kvm_cpuid_entry2> entries) {
  const std::uint64_t head = entries.size();
  std::vector<std::byte> memory(kHeadBytes + entries.size_bytes());
  std::memcpy(memory.data(), &head, kHeadBytes);
  std::memcpy(memory.data() + kHeadBytes, entries.data(), entries.size_bytes());
  Checked(::ioctl(fd_.get(), kSetCpuid, memory.data()), "KVM_SET_CPUID2");
}

void Vcpu::SetMsr(std::uint32_t index, std::uint64_t value) {
  struct {
    std::uint64_t count;
    kvm_msr_entry entry;
  } msrs{1, {}};
  msrs.entry.index = index;
  msrs.entry.data = value;
  if (Checked(::ioctl(fd_.get(), kSetMsrs, &msrs), "KVM_SET_MSRS") != 1) {
    throw std::runtime_error("KVM_SET_MSRS: not this register");
  }
}

void Vcpu::SetSingleStep(bool on) {
  single_step_ = on;
  kvm_guest_debug debug{};
  debug.control = on ? KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP : 0;
  Checked(::ioctl(fd_.get(), KVM_SET_GUEST_DEBUG, &debug), "KVM_SET_GUEST_DEBUG");
}

std::uint32_t Vcpu::Run() {
  const auto begin = std::chrono::steady_clock::now();
  int result = 0;
  do {
    result = ::ioctl(fd_.get(), KVM_RUN, 0);
  } while (result < 0 && (errno == EINTR || errno == EAGAIN) && !IsStopped());
  if (result < 0 && errno == EINTR) {
    __atomic_store_n(&run_->immediate_exit, 0, __ATOMIC_RELAXED);
    return KVM_EXIT_INTR;
  }
  Checked(result, "KVM_RUN");
  longest_ = std::max<std::chrono::nanoseconds>(longest_, std::chrono::steady_clock::now() - begin);
  return run_->exit_reason;
}

CallOutcome Vcpu::Make(const Call& call) {
  const bool vmcall = IsIntel() != foreign_;
  kvm_regs& regs = run_->s.regs.regs;
  regs = kvm_regs{};
  regs.rax = call.number;
  regs.rbx = call.rbx;
  regs.rcx = call.rcx;
  regs.rdx = call.rdx;
  regs.rsi = call.rsi;
  // Values that nobody may change.
  regs.rdi = 0xd1d1d1d1;
  regs.rbp = 0xb9b9b9b9;
  regs.r8 = 0x0808080808080808;
  regs.r15 = 0x1515151515151515;
  regs.rip = kCodeAddress + (vmcall ? kVmcallOffset : kVmmcallOffset);
  regs.rflags = kRflags;
  run_->kvm_dirty_regs = KVM_SYNC_X86_REGS;
  if (single_step_) {
    // KVM steps from where the guest stands when it is told to.
    Checked(::ioctl(fd_.get(), KVM_SET_REGS, &regs), "KVM_SET_REGS");
    SetSingleStep(true);
    run_->kvm_dirty_regs = 0;
  }
  CallOutcome outcome;
  outcome.exit_reason = Run();
  if (outcome.exit_reason == KVM_EXIT_INTR) throw std::runtime_error("stopped in a call");
  outcome.regs = run_->s.regs.regs;
  return outcome;
}

std::uint64_t Vcpu::MakeMany(const Call& call, std::uint64_t count, std::uint64_t expected) {
  kvm_regs& regs = run_->s.regs.regs;
  regs = kvm_regs{};
  regs.rbx = call.rbx;
  regs.rcx = call.rcx;
  regs.rdx = call.rdx;
  regs.rsi = call.rsi;
  regs.r8 = call.number;
  regs.r9 = expected;
  regs.r10 = count;
  regs.rip = kCodeAddress + kLoopOffset;
  regs.rflags = kRflags;
  run_->kvm_dirty_regs = KVM_SYNC_X86_REGS;
  const std::uint32_t reason = Run();
  if (reason != KVM_EXIT_IO && reason != KVM_EXIT_INTR) {
    throw std::runtime_error("the guest's loop ended oddly");
  }
  return count - run_->s.regs.regs.r10;
}

bool Vcpu::IsStopped() const {
  return __atomic_load_n(&run_->immediate_exit, __ATOMIC_RELAXED) != 0;
}

void Vcpu::Stop(pthread_t thread) {
  // The signal only has to arrive: without a handler it would end the process.
  static const bool handled = [] { return std::signal(SIGUSR1, [](int) {}) != SIG_ERR; }();
  (void)handled;
  __atomic_store_n(&run_->immediate_exit, 1, __ATOMIC_RELAXED);
  ::pthread_kill(thread, SIGUSR1);
}

std::chrono::nanoseconds Vcpu::TakeLongestRun() {
  return std::exchange(longest_, std::chrono::nanoseconds{0});
}

}  // namespace tmem
