// SPDX-License-Identifier: GPL-2.0-only
// The only locks of the host side: std ones, annotated for Clang's thread-safety analysis.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define TMEM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TMEM_THREAD_ANNOTATION(x)
#endif

// On data: which lock guards it (the member itself; what it points to).
#define TMEM_GUARDED_BY(mutex) TMEM_THREAD_ANNOTATION(guarded_by(mutex))
#define TMEM_PT_GUARDED_BY(mutex) TMEM_THREAD_ANNOTATION(pt_guarded_by(mutex))
// On functions: the caller holds these; the caller must not hold these.
#define TMEM_REQUIRES(...) TMEM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define TMEM_REQUIRES_SHARED(...) TMEM_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define TMEM_EXCLUDES(...) TMEM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define TMEM_RETURN_CAPABILITY(mutex) TMEM_THREAD_ANNOTATION(lock_returned(mutex))
// On functions that take or leave a lock.
#define TMEM_ACQUIRE(...) TMEM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TMEM_ACQUIRE_SHARED(...) TMEM_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TMEM_TRY_ACQUIRE(...) TMEM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TMEM_RELEASE(...) TMEM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TMEM_RELEASE_SHARED(...) TMEM_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define TMEM_RELEASE_GENERIC(...) TMEM_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define TMEM_ASSERT_CAPABILITY(x) TMEM_THREAD_ANNOTATION(assert_capability(x))
// On a lock: the order of taking; checked by Clang.
#define TMEM_ACQUIRED_BEFORE(...) TMEM_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define TMEM_ACQUIRED_AFTER(...) TMEM_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))
#define TMEM_CAPABILITY(name) TMEM_THREAD_ANNOTATION(capability(name))
#define TMEM_SCOPED_CAPABILITY TMEM_THREAD_ANNOTATION(scoped_lockable)
// For the rare function whose locking the analysis cannot follow; say why beside it.
#define TMEM_NO_THREAD_SAFETY_ANALYSIS TMEM_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace tmem {

// An exclusive lock. Held for short sections only: no compression, copy of pages, system call or
// freeing under it.
class TMEM_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() TMEM_ACQUIRE() { mutex_.lock(); }
  void Unlock() TMEM_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool TryLock() TMEM_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Tells the analysis, where it cannot see it, that the lock is held. Checks nothing.
  void AssertHeld() const TMEM_ASSERT_CAPABILITY(this) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope. May let go early (or for a while) by Unlock and Lock.
class TMEM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TMEM_ACQUIRE(mutex) : mutex_(mutex), held_(true) {
    mutex_.Lock();
  }
  ~MutexLock() TMEM_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() TMEM_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() TMEM_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_;
};

// A lock with many readers or one writer. For what is read on each operation and changes rarely.
class TMEM_CAPABILITY("shared_mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() TMEM_ACQUIRE() { mutex_.lock(); }
  void Unlock() TMEM_RELEASE() { mutex_.unlock(); }
  void LockShared() TMEM_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() TMEM_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class TMEM_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) TMEM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() TMEM_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class TMEM_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) TMEM_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.LockShared();
  }
  ~ReaderLock() TMEM_RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Waits for a change of what a Mutex guards. Wakes may be spurious: wait in a loop that tests the
// condition, which also lets the analysis see the guarded members under the lock.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) TMEM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False when `timeout_ns` of real time went by first.
  bool WaitFor(Mutex& mutex, std::uint64_t timeout_ns) TMEM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_ns));
    const bool woken = changed_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace tmem
