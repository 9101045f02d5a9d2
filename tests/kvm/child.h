// SPDX-License-Identifier: GPL-2.0-only
// A process of its own for a part of a test: a VMM or a daemon that gets killed.
#ifndef TESTS_KVM_CHILD_H_
#define TESTS_KVM_CHILD_H_

#include <sys/types.h>

#include <functional>

#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Runs `body` in a forked process, which ends with it (exit code 0; 1 if it threw or
// an expectation failed there or, before the fork, here), and at the
// latest with the object. Fork before the test has threads.
class Child {
 public:
  explicit Child(const std::function<void(Child&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  // In the child: says that it has come so far, and waits until it may go on.
  void Say() const;
  void Await() const;
  // In the parent: the other side. False if the child has ended, or after a minute.
  bool AwaitSaid() const;
  void GoOn() const;

  void Signal(int signal) const;
  // Of the child's end; 128 + signal if it was killed.
  int Wait();
  int Kill();

 private:
  pid_t pid_ = -1;
  UniqueFd to_child_[2];
  UniqueFd to_parent_[2];
};

}  // namespace tmem

#endif  // TESTS_KVM_CHILD_H_
