// SPDX-License-Identifier: GPL-2.0-only
// Pages of files: text and binaries.
#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <random>

#include "bench/samples/sample_sources.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

// Of one gzip; their names are far from what a command line may hold.
constexpr size_t kFilesAtOnce = 100;

// Fills `page` from `fd`; false at the end, where a part of a page is dropped.
bool ReadPage(int fd, PageBuffer page) {
  size_t have = 0;
  while (have < page.size()) {
    const ssize_t read = ::read(fd, page.data() + have, page.size() - have);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    have += static_cast<size_t>(read);
  }
  return true;
}

// Runs `gzip -dcf` on the files, its output in a pipe.
class Unpacker {
 public:
  static Result<Unpacker> Start(const std::vector<std::string>& files) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe");
    UniqueFd from(ends[0]);
    const UniqueFd to(ends[1]);
    std::vector<std::string> command = {"gzip", "-dcfq", "--"};
    command.insert(command.end(), files.begin(), files.end());
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    const int failed = ::posix_spawnp(&pid, "gzip", &actions, nullptr, arguments.data(), ::environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return SystemError("start gzip", failed);
    return Unpacker(pid, std::move(from));
  }
  Unpacker(Unpacker&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}
  Unpacker& operator=(Unpacker&&) = delete;
  ~Unpacker() {
    output_.Close();  // it ends by SIGPIPE if it has not yet
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  int output() const { return output_.get(); }

 private:
  Unpacker(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}
  pid_t pid_;
  UniqueFd output_;
};

}  // namespace

std::vector<std::string> FilesBelow(const std::vector<std::string>& directories, uint64_t seed) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& directory : directories) {
    std::error_code error;
    fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied,
                                        error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (at->is_regular_file(error) && !at->is_symlink(error)) files.push_back(at->path());
    }
  }
  std::sort(files.begin(), files.end());  // not as the file system happens to have them
  std::shuffle(files.begin(), files.end(), std::mt19937_64(seed));
  return files;
}

Result<void> ReadTextFiles(const std::vector<std::string>& files, const PageSink& sink) {
  alignas(64) std::array<std::byte, kPageBytes> page;
  for (size_t at = 0; at < files.size(); at += kFilesAtOnce) {
    const auto begin = files.begin() + static_cast<std::ptrdiff_t>(at);
    const auto count = std::min(kFilesAtOnce, files.size() - at);
    const auto unpacker = Unpacker::Start({begin, begin + static_cast<std::ptrdiff_t>(count)});
    if (!unpacker) return unpacker.error();
    while (ReadPage(unpacker->output(), PageBuffer(page))) {
      if (std::memchr(page.data(), 0, page.size()) != nullptr) continue;
      if (!sink(PageView(page))) return Ok();
    }
  }
  return Ok();
}

void ReadElfFiles(const std::vector<std::string>& files, const PageSink& sink) {
  alignas(64) std::array<std::byte, kPageBytes> page;
  for (const std::string& path : files) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid() || !ReadPage(file.get(), PageBuffer(page))) continue;
    if (std::memcmp(page.data(), ELFMAG, SELFMAG) != 0) continue;
    do {
      if (!sink(PageView(page))) return;
    } while (ReadPage(file.get(), PageBuffer(page)));
  }
}

}  // namespace tmem
