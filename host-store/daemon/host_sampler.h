// SPDX-License-Identifier: GPL-2.0-only
// What guests have resident, and whether the host is short of memory, as the kernel tells it.
#ifndef HOST_STORE_DAEMON_HOST_SAMPLER_H_
#define HOST_STORE_DAEMON_HOST_SAMPLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "host-store/base/result.h"

namespace tmem {

// How a guest's memory was seen, best first.
enum class ResidentSource : std::uint8_t {
  kCgroup,      // memory.stat of its VMM's cgroup
  kRamFile,     // blocks of the file that is its memory
  kNotRunning,  // no such cgroup or file, and no guest
  kInFull,      // not at all: it counts as if all its memory were resident
};
const char* ToString(ResidentSource source);

// Where to look for one guest.
struct GuestView {
  std::string cgroup;              // of its VMM, as in GuestRule; empty: not known
  std::string ram_path;            // empty: not known
  std::uint64_t memory_bytes = 0;  // what it has in full; 0: not known
  bool connected = false;
};

struct GuestResident {
  ResidentSource source = ResidentSource::kInFull;
  std::uint64_t bytes = 0;
  std::string cgroup;   // whose figure it is: that of the view, or above it
  std::string why_not;  // if it counts in full although it should be seen
};

// Where cgroups with the memory controller are mounted: the unified hierarchy, or version 1's.
std::string FindCgroupRoot();

struct CgroupResident {
  std::string path;
  std::uint64_t bytes;
};
// Memory that the kernel cannot take back but by swapping: anonymous, shared, its own. Page cache
// of the VMM's files is not in it. A cgroup without the controller is counted by the nearest one
// above that has it. Errors: kNotFound, no such cgroup; kUnavailable, only the root would do;
// system.
Result<CgroupResident> ReadCgroupResident(const std::string& root, const std::string& path);

// What is allocated to a file on tmpfs or hugetlbfs. Pages of it that the host has swapped out are
// in it: a limit that is too low for that reason is no harm. Errors: kNotFound; no regular file;
// system.
Result<std::uint64_t> ReadFileResident(const std::string& path);

// The time that some task has waited for memory ("some ... total=" of a pressure file).
// Errors: the kernel does not tell.
Result<std::uint64_t> ReadStalledNs(const std::string& path);

// Pages that the kernel has looked at because the host as a whole was short of memory, and not
// one control group at its own limit ("pgscan_kswapd" and "pgscan_direct" of /proc/vmstat [6.1:
// shrink_inactive_list counts both only outside of a group's reclaim]). Errors: not understood.
Result<std::uint64_t> ReadHostScans(const std::string& path);

// The first source that works. A guest in full of unknown size has `unknown_bytes`.
GuestResident SeeGuest(const std::string& cgroup_root, const GuestView& view,
                       std::uint64_t unknown_bytes);

// All guests together; a cgroup that several are in, or that is inside another one, counts once.
std::uint64_t SumResident(const std::vector<GuestResident>& guests);

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_HOST_SAMPLER_H_
