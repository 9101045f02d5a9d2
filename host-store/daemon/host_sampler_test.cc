// SPDX-License-Identifier: GPL-2.0-only
// Over real files: memory that comes and goes, and a directory that looks like a cgroup.
#include "host-store/daemon/host_sampler.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kUnknown = 777;

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string Version2(std::uint64_t anonymous, std::uint64_t shared) {
  return "anon " + std::to_string(anonymous) +
         "\nfile 999999999\nkernel 5000\nkernel_stack 3\nshmem " + std::to_string(shared) +
         "\ninactive_anon 1\nslab_reclaimable 3000\nslab 4000\n";
}

class HostSamplerTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.path() + name; }

  const TestDirectory directory_;
};

TEST_F(HostSamplerTest, ARamFileCountsWhatWasTouchedAndNotWhatWasPunched) {
  const UniqueFd file(::memfd_create("ram", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 64 * kMiB), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  EXPECT_EQ(ReadFileResident(path).value(), 0u);
  void* const memory =
      ::mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::fill_n(static_cast<char*>(memory) + 8 * kMiB, 24 * kMiB, 'x');
  EXPECT_EQ(ReadFileResident(path).value(), 24 * kMiB);
  ASSERT_EQ(
      ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 * kMiB, 16 * kMiB), 0);
  EXPECT_EQ(ReadFileResident(path).value(), 8 * kMiB);
  ::munmap(memory, 64 * kMiB);
}

TEST_F(HostSamplerTest, AFileThatIsNotThereIsNotFoundAndADirectoryIsNoMemory) {
  EXPECT_EQ(ReadFileResident(Path("/none")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadFileResident(directory_.path()).error().code, ErrorCode::kSystem);
}

TEST_F(HostSamplerTest, ACgroupCountsWhatTheKernelCannotTakeBack) {
  Write(Path("/machine/vm/memory.stat"), Version2(10 * kMiB, 3 * kMiB));
  const CgroupResident seen = ReadCgroupResident(directory_.path(), "/machine/vm").value();
  EXPECT_EQ(seen.path, "/machine/vm");
  EXPECT_EQ(seen.bytes, 13 * kMiB + 2000);
}

TEST_F(HostSamplerTest, ACgroupOfVersion1CountsWhatIsBelowItToo) {
  Write(Path("/vm/memory.stat"),
        "cache 5\nrss 7\nshmem 3\nhierarchical_memory_limit 99\ntotal_cache 9\n"
        "total_rss 4096\ntotal_rss_huge 1\ntotal_shmem 8192\n");
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/vm").value().bytes, 12288u);
}

// A vCPU's threads may be in a cgroup that has no memory controller.
TEST_F(HostSamplerTest, ACgroupWithoutTheControllerIsCountedByTheOneAbove) {
  Write(Path("/machine/vm/memory.stat"), Version2(kMiB, 0));
  std::filesystem::create_directories(Path("/machine/vm/threads/vcpu0"));
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/machine/vm/threads/vcpu0").value().path,
            "/machine/vm");
  // The root's figure is the whole host's.
  Write(Path("/memory.stat"), Version2(kMiB, 0));
  std::filesystem::create_directories(Path("/other/vm"));
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/other/vm").error().code,
            ErrorCode::kUnavailable);
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/other/../machine/vm").error().code,
            ErrorCode::kNotFound);
}

TEST_F(HostSamplerTest, AStatThatIsNotUnderstoodIsAnErrorAndNotNothing) {
  Write(Path("/vm/memory.stat"), "");
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/vm").error().code, ErrorCode::kSystem);
  Write(Path("/vm/memory.stat"), "anon x\nmanon 5\n");
  EXPECT_EQ(ReadCgroupResident(directory_.path(), "/vm").error().code, ErrorCode::kSystem);
}

TEST_F(HostSamplerTest, PressureIsTheTotalOfSome) {
  Write(Path("/memory"),
        "some avg10=1.53 avg60=0.87 avg300=0.73 total=4321\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n");
  EXPECT_EQ(ReadStalledNs(Path("/memory")).value(), 4'321'000u);
  EXPECT_EQ(ReadStalledNs(Path("/none")).error().code, ErrorCode::kNotFound);
  for (const char* text : {"", "some", "full total=5\n", "some avg10=0\nfull total=5\n"}) {
    Write(Path("/memory"), text);
    EXPECT_FALSE(ReadStalledNs(Path("/memory")).ok()) << text;
  }
}

TEST_F(HostSamplerTest, ScansAreThoseOfTheHostAsAWhole) {
  Write(Path("/vmstat"),
        "nr_free_pages 5\npgscan_kswapd 30\npgscan_direct 4\npgscan_direct_throttle 500\n"
        "pgscan_anon 6000\n");
  EXPECT_EQ(ReadHostScans(Path("/vmstat")).value(), 34u);
  EXPECT_EQ(ReadHostScans(Path("/none")).error().code, ErrorCode::kNotFound);
  Write(Path("/vmstat"), "pgscan_kswapd 30\n");
  EXPECT_FALSE(ReadHostScans(Path("/vmstat")).ok());
}

TEST_F(HostSamplerTest, TheKernelsOwnCountOfScans) {
  EXPECT_TRUE(ReadHostScans("/proc/vmstat").ok());
}

TEST_F(HostSamplerTest, TheKernelsOwnPressureFile) {
  const std::string path = "/proc/pressure/memory";
  if (::access(path.c_str(), R_OK) != 0) GTEST_SKIP() << "this kernel has no " << path;
  EXPECT_TRUE(ReadStalledNs(path).ok());
}

TEST_F(HostSamplerTest, TheFirstSourceThatWorksIsTaken) {
  Write(Path("/vm/memory.stat"), Version2(kMiB, 0));
  Write(Path("/ram"), std::string(3 * kMiB, 'x'));
  GuestView view{.cgroup = "/vm", .ram_path = Path("/ram"), .memory_bytes = 5 * kMiB};
  const auto see = [&] { return SeeGuest(directory_.path(), view, kUnknown); };
  EXPECT_EQ(see().source, ResidentSource::kCgroup);
  EXPECT_EQ(see().cgroup, "/vm");
  std::filesystem::remove(Path("/vm/memory.stat"));
  EXPECT_EQ(see().source, ResidentSource::kRamFile);
  EXPECT_GE(see().bytes, 3 * kMiB);
  view.ram_path = Path("/none");
  EXPECT_EQ(see().source, ResidentSource::kInFull) << "its cgroup is there, so it may run";
  EXPECT_EQ(see().bytes, 5 * kMiB);
  EXPECT_THAT(see().why_not, HasSubstr("/none"));
}

TEST_F(HostSamplerTest, AGuestThatCannotBeSeenCountsInFull) {
  GuestView view{.cgroup = "/none", .ram_path = "", .memory_bytes = 0, .connected = false};
  const auto see = [&] { return SeeGuest(directory_.path(), view, kUnknown); };
  EXPECT_EQ(see().source, ResidentSource::kNotRunning);
  EXPECT_EQ(see().bytes, 0u);
  view.connected = true;
  EXPECT_EQ(see().source, ResidentSource::kInFull) << "it runs, so the name is wrong";
  EXPECT_EQ(see().bytes, kUnknown);
  view = {.cgroup = "", .ram_path = "", .memory_bytes = 5 * kMiB, .connected = false};
  EXPECT_EQ(see().source, ResidentSource::kInFull) << "nothing would tell that it runs";
  EXPECT_EQ(see().bytes, 5 * kMiB);
}

TEST_F(HostSamplerTest, ACgroupOfSeveralGuestsCountsOnce) {
  const auto in = [](const std::string& cgroup, std::uint64_t bytes) {
    return GuestResident{
        .source = ResidentSource::kCgroup, .bytes = bytes, .cgroup = cgroup, .why_not = ""};
  };
  EXPECT_EQ(SumResident(
                {in("/vms", 100),
                 in("/vms", 100),
                 in("/vms/a", 30),
                 in("/vms-b", 7),
                 {.source = ResidentSource::kRamFile, .bytes = 1000, .cgroup = "", .why_not = ""}}),
            1107u);
  EXPECT_EQ(SumResident({in("/vms-b", 7), in("/vms/a", 30), in("/vms/a/b", 20)}), 37u);
  EXPECT_EQ(SumResident({}), 0u);
}

}  // namespace
}  // namespace tmem
