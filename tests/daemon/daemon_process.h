// SPDX-License-Identifier: GPL-2.0-only
// tmemd and tmemctl as child processes of a test.
#ifndef TESTS_DAEMON_DAEMON_PROCESS_H_
#define TESTS_DAEMON_DAEMON_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tmem {

struct Finished {
  int exit_code;       // 128 + signal if killed
  std::string output;  // stdout and stderr
};

// Runs a program to its end.
Finished RunProgram(const std::vector<std::string>& command);

// A tmemd that runs until Stop or the end of the object (SIGKILL then).
class DaemonProcess {
 public:
  // Starts it and waits until it answers; the test fails if it does not within a minute. What it
  // prints goes to `log_path`, or where the test's own output goes.
  DaemonProcess(const std::string& run_dir, std::vector<std::string> options,
                const std::string& log_path = "");
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool answers() const { return answers_; }
  // `tmemctl status --json`; null if it failed.
  nlohmann::json Status() const;
  nlohmann::json StatusOfGuest(const std::string& name) const;
  // Sends the signal and returns the exit code.
  int Stop(int signal);

 private:
  std::string run_dir_;
  pid_t pid_ = -1;
  bool answers_ = false;
};

// User and system time of a process, in ticks of 10 ms.
std::uint64_t CpuNsOf(pid_t pid);

// The same to the nanosecond, of the threads that there are; 0 where the kernel does not tell.
std::uint64_t ExactCpuNsOf(pid_t pid);

// File descriptors that the process has open.
std::size_t OpenFilesOf(pid_t pid);

// Everything the process holds: its anonymous and file pages, and all pages of the memfds it has
// open, mapped or not, windows included.
std::uint64_t MemoryBytesOf(pid_t pid);

}  // namespace tmem

#endif  // TESTS_DAEMON_DAEMON_PROCESS_H_
