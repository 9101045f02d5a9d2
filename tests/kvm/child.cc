// SPDX-License-Identifier: GPL-2.0-only
// Forks, talks over pipes, reaps.
#include "tests/kvm/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

namespace tmem {
namespace {

constexpr int kPatienceMs = 60'000;

void MakePipe(UniqueFd (&ends)[2]) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  ends[0] = UniqueFd(fds[0]);
  ends[1] = UniqueFd(fds[1]);
}

void WriteByte(const UniqueFd& fd) {
  const char byte = '.';
  (void)!::write(fd.get(), &byte, 1);
}

bool ReadByte(const UniqueFd& fd) {
  pollfd wanted{fd.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&wanted, 1, kPatienceMs) == 1 && ::read(fd.get(), &byte, 1) == 1;
}

}  // namespace

Child::Child(const std::function<void(Child&)>& body) {
  MakePipe(to_child_);
  MakePipe(to_parent_);
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    to_parent_[0].Close();
    to_child_[1].Close();
    int code = 0;
    try {
      body(*this);
      if (::testing::Test::HasFailure()) code = 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  to_parent_[1].Close();
  to_child_[0].Close();
}

Child::~Child() {
  if (pid_ > 0) (void)Kill();
}

void Child::Say() const {
  WriteByte(to_parent_[1]);
}
void Child::Await() const {
  (void)ReadByte(to_child_[0]);
}
bool Child::AwaitSaid() const {
  return ReadByte(to_parent_[0]);
}
void Child::GoOn() const {
  WriteByte(to_child_[1]);
}
void Child::Signal(int signal) const {
  (void)::kill(pid_, signal);
}

int Child::Wait() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Child::Kill() {
  Signal(SIGKILL);
  return Wait();
}

}  // namespace tmem
