// SPDX-License-Identifier: GPL-2.0-only
// The host module kvm_tmem as a test meets it: loaded, unloaded, its counters, what it leaves.
#ifndef TESTS_KVM_MODULE_H_
#define TESTS_KVM_MODULE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Why nothing here can run; empty if it can. These tests load and unload a kernel module and kill
// processes, so they run in the lab's KVM host, or where TMEM_KVM_HERE=1 says that they may.
std::string WhyNoKvm();
// Also without a module to load: TMEM_KVM_MODULE names the file.
std::string WhyNoModule();

bool IsModuleLoaded();
// 0 or the error number.
int LoadModule(const std::string& parameters = "");
int UnloadModule();

using Counters = std::map<std::string, std::uint64_t>;
// All of /sys/class/misc/kvm_tmem/counters.
Counters ReadCounters();
// What moved, without what is a level or a maximum (channels, entry_max_us).
Counters Moved(const Counters& before, const Counters& after);

std::string ReadText(const std::string& path);
bool WriteText(const std::string& path, const std::string& text);

// Lines of the kernel's log since the object was made.
class KernelLog {
 public:
  KernelLog();
  std::vector<std::string> NewLines();
  // Those that a healthy kernel does not write.
  std::vector<std::string> NewTrouble();

 private:
  UniqueFd fd_;
};

// Memory that the kernel holds for itself; the same before and after what leaves nothing.
struct KernelMemory {
  std::uint64_t vmalloc_bytes = 0;
  std::uint64_t unreclaimable_slab_bytes = 0;
};
KernelMemory ReadKernelMemory();

}  // namespace tmem

#endif  // TESTS_KVM_MODULE_H_
