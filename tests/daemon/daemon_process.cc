// SPDX-License-Identifier: GPL-2.0-only
// Starts, asks, measures and stops daemons.
#include "tests/daemon/daemon_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

extern char** environ;

namespace tmem {
namespace {

constexpr int kStartPatienceMs = 60'000;

pid_t Spawn(const std::vector<std::string>& command, const posix_spawn_file_actions_t* actions) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, argv[0], actions, nullptr, argv.data(), environ);
  if (failed != 0) std::fprintf(stderr, "cannot start %s\n", argv[0]);
  return failed == 0 ? pid : -1;
}

int WaitFor(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::uint64_t KibOf(pid_t pid, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size() + 1, key + ":") == 0) {
      return std::stoull(line.substr(key.size() + 1));
    }
  }
  return 0;
}

// Allocated bytes of each memfd among the process's fds, once each.
std::uint64_t MemfdBytesOf(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return 0;
  std::set<ino_t> seen;
  std::uint64_t bytes = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string link = path + "/" + entry->d_name;
    char target[64] = {};
    if (::readlink(link.c_str(), target, sizeof target - 1) < 0) continue;
    struct stat status {};
    if (std::string(target).rfind("/memfd:", 0) != 0 || ::stat(link.c_str(), &status) != 0) {
      continue;
    }
    if (seen.insert(status.st_ino).second) {
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
  }
  ::closedir(directory);
  return bytes;
}

}  // namespace

Finished RunProgram(const std::vector<std::string>& command) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return {-1, "pipe2 failed"};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  const pid_t pid = Spawn(command, &actions);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_fds[1]);
  std::string output;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(pipe_fds[0], bytes, sizeof bytes)) > 0;) {
    output.append(bytes, static_cast<std::size_t>(got));
  }
  ::close(pipe_fds[0]);
  return {pid < 0 ? -1 : WaitFor(pid), output};
}

DaemonProcess::DaemonProcess(const std::string& run_dir, std::vector<std::string> options,
                             const std::string& log_path)
    : run_dir_(run_dir) {
  std::vector<std::string> command = {TMEM_TMEMD, "--run-dir", run_dir};
  command.insert(command.end(), options.begin(), options.end());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (!log_path.empty()) {
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600);
  }
  pid_ = Spawn(command, &actions);
  ::posix_spawn_file_actions_destroy(&actions);
  if (pid_ < 0) return;
  for (int ms = 0; ms < kStartPatienceMs && !answers_; ms += 20) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    answers_ = !Status().is_null();
    if (!answers_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) (void)Stop(SIGKILL);
}

nlohmann::json DaemonProcess::Status() const {
  const Finished asked = RunProgram({TMEM_TMEMCTL, "--run-dir", run_dir_, "status", "--json"});
  if (asked.exit_code != 0) return nullptr;
  return nlohmann::json::parse(asked.output, nullptr, false);
}

nlohmann::json DaemonProcess::StatusOfGuest(const std::string& name) const {
  const nlohmann::json status = Status();
  if (!status.is_object()) return nullptr;
  for (const auto& guest : status.at("guests")) {
    if (guest.at("name") == name) return guest;
  }
  return nullptr;
}

int DaemonProcess::Stop(int signal) {
  if (pid_ <= 0) return -1;
  ::kill(pid_, signal);
  const int code = WaitFor(pid_);
  pid_ = -1;
  return code;
}

std::uint64_t CpuNsOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string word;
  for (int field = 3; field < 14; ++field) rest >> word;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  rest >> user >> system;
  return (user + system) * (1'000'000'000u / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
}

std::uint64_t ExactCpuNsOf(pid_t pid) {
  std::uint64_t cpu_ns = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::uint64_t of_thread_ns = 0;
    std::ifstream(task.path() / "schedstat") >> of_thread_ns;
    cpu_ns += of_thread_ns;
  }
  return cpu_ns;
}

std::size_t OpenFilesOf(pid_t pid) {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::uint64_t MemoryBytesOf(pid_t pid) {
  return (KibOf(pid, "RssAnon") + KibOf(pid, "RssFile")) * 1024 + MemfdBytesOf(pid);
}

}  // namespace tmem
