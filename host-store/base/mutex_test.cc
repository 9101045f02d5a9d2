// SPDX-License-Identifier: GPL-2.0-only
// Tests of the annotated locks; under ThreadSanitizer they also test that it understands them.
#include "host-store/base/mutex.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace tmem {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 2000;

class Counter {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  // Waits until the count is `count`; false when a minute went by first.
  bool WaitUntil(int count) {
    const MutexLock lock(mutex_);
    while (count_ < count) {
      if (!changed_.WaitFor(mutex_, kMinuteNs)) return false;
    }
    return true;
  }
  bool TryAdd() {
    if (!mutex_.TryLock()) return false;
    ++count_;
    mutex_.Unlock();
    return true;
  }
  int count() {
    const MutexLock lock(mutex_);
    return count_;
  }

 private:
  static constexpr std::uint64_t kMinuteNs = 60'000'000'000;
  Mutex mutex_;
  CondVar changed_;
  int count_ TMEM_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, CountsEveryAddition) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&counter] {
      for (int round = 0; round < kRounds; ++round) counter.Add();
    });
  }
  EXPECT_TRUE(counter.WaitUntil(kThreads * kRounds));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(counter.TryAdd());
  EXPECT_EQ(counter.count(), kThreads * kRounds + 1);
}

TEST(MutexTest, WaitForReturnsWhenTimeIsUp) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  // A spurious wake is allowed, a wait without end is not.
  while (never.WaitFor(mutex, 1000)) {
  }
}

TEST(MutexTest, LockMayBeLeftEarlyAndTakenAgain) {
  Mutex mutex;
  MutexLock lock(mutex);
  lock.Unlock();
  const bool taken = mutex.TryLock();
  if (taken) mutex.Unlock();
  EXPECT_TRUE(taken);
  lock.Lock();
}

class Table {
 public:
  void Set(int value) {
    const WriterLock lock(mutex_);
    first_ = value;
    second_ = value;
  }
  bool Consistent() {
    const ReaderLock lock(mutex_);
    return first_ == second_;
  }

 private:
  SharedMutex mutex_;
  int first_ TMEM_GUARDED_BY(mutex_) = 0;
  int second_ TMEM_GUARDED_BY(mutex_) = 0;
};

TEST(SharedMutexTest, ReadersSeeWholeWrites) {
  Table table;
  std::vector<std::thread> threads;
  threads.emplace_back([&table] {
    for (int round = 0; round < kRounds; ++round) table.Set(round);
  });
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&table] {
      for (int round = 0; round < kRounds; ++round) EXPECT_TRUE(table.Consistent());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tmem
