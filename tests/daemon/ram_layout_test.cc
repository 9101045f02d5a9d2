// SPDX-License-Identifier: GPL-2.0-only
// Where QEMU's machines have their RAM, by QEMU itself (`info mtree -f`), against RamMap.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "host-store/doorbell/guest_ram.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kGib = 1u << 30;
constexpr std::uint64_t kStep = 64u << 10;
constexpr const char* kQemu = "/usr/bin/qemu-system-x86_64";
// Devices lie over the RAM there, and may be taken for RAM or not.
constexpr std::uint64_t kLegacyBegin = 0xa0000;
constexpr std::uint64_t kLegacyEnd = 0x100000;

struct RamRange {
  std::uint64_t begin;
  std::uint64_t last;
  std::uint64_t offset;
};

// A machine that does not run, as its monitor describes the memory its CPUs see. It maps the RAM
// and touches nothing of it.
class StoppedMachine {
 public:
  StoppedMachine(const std::string& machine, std::uint64_t ram_mib,
                 const std::string& memory_options = "", const std::string& commands = "") {
    const std::string size = std::to_string(ram_mib) + "M";
    const std::string command = "printf '" + commands + "info mtree -f\\nquit\\n' | " + kQemu +
                                " -S -display none -nodefaults -accel tcg -monitor stdio"
                                " -object memory-backend-memfd,id=guest-ram,share=on,size=" +
                                size + " -machine " + machine + ",memory-backend=guest-ram -m " +
                                size + memory_options;
    std::istringstream lines(RunProgram({"/bin/sh", "-c", command}).output);
    bool of_cpus = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("FlatView")) of_cpus = false;
      if (line.starts_with(" AS \"memory\"")) of_cpus = true;
      if (of_cpus) Take(line);
    }
  }

  // The offset in the RAM file of an address; nothing if another thing or nothing is there.
  std::optional<std::uint64_t> OffsetOf(std::uint64_t address) const {
    for (const RamRange& range : ranges_) {
      if (address >= range.begin && address <= range.last) {
        return range.offset + (address - range.begin);
      }
    }
    return std::nullopt;
  }
  const std::vector<RamRange>& ranges() const { return ranges_; }
  bool has_more() const { return has_more_; }

 private:
  void Take(const std::string& line) {
    RamRange range{};
    int end = 0;
    if (std::sscanf(line.c_str(), "  %16lx-%16lx (prio %*d, ram): %n", &range.begin, &range.last,
                    &end) != 2 ||
        end == 0) {
      return;
    }
    const std::string name = line.substr(static_cast<std::size_t>(end));
    has_more_ |= name.starts_with("more");
    if (!name.starts_with("guest-ram")) return;
    if (const std::size_t at = name.find('@'); at != std::string::npos) {
      std::from_chars(name.data() + at + 1, name.data() + name.size(), range.offset, 16);
    }
    ranges_.push_back(range);
  }

  std::vector<RamRange> ranges_;
  bool has_more_ = false;
};

// What RamMap takes for RAM is that very place of the file, and it knows all of the RAM.
void ExpectAgreement(const StoppedMachine& machine, RamLayout layout, std::uint64_t ram_bytes) {
  ASSERT_FALSE(machine.ranges().empty()) << "QEMU said nothing";
  const RamMap map(layout, ram_bytes);
  std::uint64_t known = 0;
  for (std::uint64_t address = 0; address < 5 * kGib + ram_bytes; address += kStep) {
    const std::optional<FileRange> ours = map.Locate(address, kStep);
    if (!ours) continue;
    known += kStep;
    for (const std::uint64_t at : {address, address + kStep - 1}) {
      const std::optional<std::uint64_t> theirs = machine.OffsetOf(at);
      ASSERT_TRUE(theirs) << std::hex << at << " is no RAM of this file";
      ASSERT_EQ(ours->offset + (at - address), *theirs) << std::hex << at;
    }
  }
  EXPECT_EQ(known, ram_bytes - (kLegacyEnd - kLegacyBegin));
}

class RamLayoutOfQemu : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kQemu)) GTEST_SKIP() << "no " << kQemu;
  }
};

TEST_F(RamLayoutOfQemu, PcAroundItsSplit) {
  for (const std::uint64_t mib : {128u, 3583u, 3584u, 3585u, 6144u}) {
    SCOPED_TRACE(mib);
    ExpectAgreement(StoppedMachine("pc", mib), RamLayout::kPc, mib * kMib);
  }
}

TEST_F(RamLayoutOfQemu, Q35AroundItsSplit) {
  for (const std::uint64_t mib : {128u, 2815u, 2816u, 2817u, 6144u}) {
    SCOPED_TRACE(mib);
    ExpectAgreement(StoppedMachine("q35", mib), RamLayout::kQ35, mib * kMib);
  }
}

// Memory that is plugged in later has another file; the RAM stays where it was, and the addresses
// of the new memory are none of the file's.
TEST_F(RamLayoutOfQemu, MemoryThatIsPluggedInIsNoneOfTheFile) {
  for (const std::uint64_t mib : {1024u, 4096u}) {
    SCOPED_TRACE(mib);
    const StoppedMachine machine("pc", mib, ",slots=2,maxmem=16G",
                                 "object_add memory-backend-ram,id=more,size=256M\\n"
                                 "device_add pc-dimm,id=dimm,memdev=more\\n");
    EXPECT_TRUE(machine.has_more());
    ExpectAgreement(machine, RamLayout::kPc, mib * kMib);
  }
}

}  // namespace
}  // namespace tmem
