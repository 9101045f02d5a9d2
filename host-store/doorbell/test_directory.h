// SPDX-License-Identifier: GPL-2.0-only
// A directory of its own for a test, removed with what is in it.
#ifndef HOST_STORE_DOORBELL_TEST_DIRECTORY_H_
#define HOST_STORE_DOORBELL_TEST_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tmem {

class TestDirectory {
 public:
  TestDirectory() {
    std::string path = "/tmp/tmem-test-XXXXXX";  // short: socket paths are bounded
    path_ = ::mkdtemp(path.data());
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_TEST_DIRECTORY_H_
