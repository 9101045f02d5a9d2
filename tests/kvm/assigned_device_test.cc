// SPDX-License-Identifier: GPL-2.0-only
// A guest with a device of its own: the device may write to any of its memory by DMA, so nothing of
// it is dropped (R6). Needs an IOMMU and a device that nobody uses: check.py boots a host with
// both.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "host-store/doorbell/guest_ram.h"
#include "host-store/doorbell/unique_fd.h"
#include "tests/kvm/report_fixture.h"

namespace tmem {
namespace {

// QEMU's pci-testdev.
constexpr const char* kVendor = "0x1b36";
constexpr const char* kDevice = "0x0005";

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool Write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

// The group of the device, given to VFIO; empty if there is none.
std::string TakeDevice() {
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices")) {
    const std::filesystem::path& device = entry.path();
    if (FirstLine(device / "vendor") != kVendor || FirstLine(device / "device") != kDevice ||
        !std::filesystem::exists(device / "iommu_group")) {
      continue;
    }
    if (std::system("modprobe vfio-pci") != 0) return "";
    if (!std::filesystem::exists(device / "driver")) {
      Write(device / "driver_override", "vfio-pci");
      Write("/sys/bus/pci/drivers_probe", device.filename());
    }
    return std::filesystem::read_symlink(device / "iommu_group").filename();
  }
  return "";
}

class AssignedDevice : public Reports {
 protected:
  void SetUp() override {
    Reports::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string number = TakeDevice();
    if (number.empty()) GTEST_SKIP() << "no IOMMU here, or no device to assign";
    group_ = UniqueFd(::open(("/dev/vfio/" + number).c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(group_.valid()) << number;
    kvm_create_device create{};
    create.type = KVM_DEV_TYPE_VFIO;
    ASSERT_EQ(::ioctl(vm_->fd(), KVM_CREATE_DEVICE, &create), 0);
    device_ = UniqueFd(static_cast<int>(create.fd));
  }
  void TearDown() override {
    device_.Close();
    group_.Close();
    Reports::TearDown();
  }

  // As QEMU tells KVM of a device that it assigns, or takes away.
  void Tell(std::uint64_t what) {
    const int group = group_.get();
    kvm_device_attr attribute{};
    attribute.group = KVM_DEV_VFIO_GROUP;
    attribute.attr = what;
    attribute.addr = reinterpret_cast<std::uintptr_t>(&group);
    ASSERT_EQ(::ioctl(device_.get(), KVM_SET_DEVICE_ATTR, &attribute), 0);
  }

  UniqueFd group_;
  UniqueFd device_;
};

TEST_F(AssignedDevice, NothingIsDroppedWhileThereIsOne) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(Report({{8 * kMib, kMib, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  const std::uint64_t before = Allocated();
  Tell(KVM_DEV_VFIO_GROUP_ADD);
  EXPECT_EQ(Report({{10 * kMib, kMib, 0, 0, 0}, {12 * kMib, kMib, 0, 0, 0}}).tag,
            TMEM_STATUS_INHIBITED);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(Slot()[1].status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(Allocated(), before);
  EXPECT_EQ(At(10 * kMib), 0x5a);
  Tell(KVM_DEV_VFIO_GROUP_DEL);
  EXPECT_EQ(Report({{10 * kMib, kMib, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  EXPECT_EQ(At(10 * kMib), 0);
}

// The same over ivshmem, where the daemon looks at the VMM from outside.
TEST_F(AssignedDevice, IsSeenFromOutside) {
  struct stat file {};
  ASSERT_EQ(::fstat(vm_->memory_fd(), &file), 0);
  const Result<void> with = CheckMayDrop(::getpid(), file);
  ASSERT_FALSE(with);
  EXPECT_EQ(with.error().message, "it has an assigned device");
  device_.Close();
  group_.Close();
  EXPECT_TRUE(CheckMayDrop(::getpid(), file));
}

}  // namespace
}  // namespace tmem
