// SPDX-License-Identifier: GPL-2.0-only
// A thread that plays the daemon for one guest without being told each step.
#ifndef TESTS_KVM_SERVING_DAEMON_H_
#define TESTS_KVM_SERVING_DAEMON_H_

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/kvm/daemon_double.h"

namespace tmem {

// Accepts whoever registers and serves the last one accepted, until the end of the object.
class ServingDaemon {
 public:
  explicit ServingDaemon(DaemonDouble& device) : device_(device), thread_([this] { Loop(); }) {}
  ~ServingDaemon() {
    stop_ = true;
    thread_.join();
  }
  ServingDaemon(const ServingDaemon&) = delete;
  ServingDaemon& operator=(const ServingDaemon&) = delete;

  std::uint64_t served() const { return served_; }

 private:
  void Loop() {
    std::unique_ptr<DoubleChannel> channel;
    while (!stop_) {
      if (const auto waiting = device_.Next()) {
        if (auto accepted = device_.Accept(*waiting)) {
          channel = std::move(accepted);
          channel->AnswerRegistration();
        }
      }
      const std::uint64_t served = channel ? channel->Serve() : 0;
      served_ += served;
      if (served > 0) channel->Notify();
      if (served == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  DaemonDouble& device_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> served_ = 0;
  std::thread thread_;
};

}  // namespace tmem

#endif  // TESTS_KVM_SERVING_DAEMON_H_
