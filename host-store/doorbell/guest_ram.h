// SPDX-License-Identifier: GPL-2.0-only
// Where a guest's memory lies in the file behind it, and whether it may be dropped from outside.
#ifndef HOST_STORE_DOORBELL_GUEST_RAM_H_
#define HOST_STORE_DOORBELL_GUEST_RAM_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "abi/tmem_abi.h"
#include "host-store/base/result.h"

namespace tmem {

// How a machine of QEMU puts its RAM into the guest's physical addresses.
enum class RamLayout : std::uint8_t { kPc, kQ35 };
std::optional<RamLayout> RamLayoutOfName(std::string_view name);

// What an operator says of a guest's memory.
struct RamConfig {
  std::string path;  // of a file that QEMU maps shared; empty: not known, nothing is reported
  RamLayout layout = RamLayout::kPc;
  bool reports = true;  // free memory may be reported, over either doorbell
};

struct FileRange {
  std::uint64_t offset;
  std::uint64_t bytes;
};

// The place of physical addresses in a RAM file of a size: all of them below 4 GiB or, from a size
// on that the machine has, a lower part and the rest from 4 GiB on. Pure.
class RamMap {
 public:
  RamMap(RamLayout layout, std::uint64_t ram_bytes);

  // Nothing unless the whole range is RAM: not empty, in whole pages, not around the end of the
  // address space, not across the hole, and not in the legacy area below 1 MiB where devices lie
  // over the RAM [R5].
  std::optional<FileRange> Locate(std::uint64_t address, std::uint64_t bytes) const;

  std::uint64_t below_4g_bytes() const { return below_4g_bytes_; }

 private:
  std::uint64_t ram_bytes_;
  std::uint64_t below_4g_bytes_;
};

// Whether memory of process `pid` that is mapped from the file `file` can be dropped by punching
// the file [R4, R6]: all its mappings of the file are shared and cover it, and it has no memory
// locked or pinned, no assigned device, and no userfaultfd (postcopy). What cannot be seen is
// refused; the error says why.
Result<void> CheckMayDrop(pid_t pid, const struct stat& file);

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_GUEST_RAM_H_
