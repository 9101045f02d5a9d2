// SPDX-License-Identifier: GPL-2.0-only
// Loads and stores of words that a guest may change at any moment.
#ifndef HOST_STORE_WINDOW_SHARED_MEMORY_ACCESS_H_
#define HOST_STORE_WINDOW_SHARED_MEMORY_ACCESS_H_

#include <cstdint>
#include <cstring>

#include "abi/tmem_abi.h"

namespace tmem {

// Each access happens exactly once: what was checked is what is used.
template <typename T>
T LoadRelaxed(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <typename T>
T LoadAcquire(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
template <typename T>
void StoreRelaxed(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}
template <typename T>
void StoreRelease(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// Only from `expected`; says whether it was that.
template <typename T>
bool CompareSwap(T& word, T expected, T desired) {
  return __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}

// Keeps a later load from passing an earlier store; x86 reorders these two otherwise. Whoever
// publishes, and whoever is about to sleep, needs it once.
inline void FullFence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// The one copy of a struct of 8-byte words that is ever made of what the guest wrote.
template <typename T>
T CopyOnce(const T& shared) {
  static_assert(sizeof(T) % sizeof(std::uint64_t) == 0 && alignof(T) == alignof(std::uint64_t));
  std::uint64_t words[sizeof(T) / sizeof(std::uint64_t)];
  const auto* from = reinterpret_cast<const std::uint64_t*>(&shared);
  for (auto& word : words) word = __atomic_load_n(from++, __ATOMIC_RELAXED);
  T copy;
  std::memcpy(&copy, words, sizeof copy);
  return copy;
}

// Zeroes such a struct with whole-word stores.
template <typename T>
void ZeroShared(T& shared) {
  static_assert(sizeof(T) % sizeof(std::uint64_t) == 0 && alignof(T) == alignof(std::uint64_t));
  auto* to = reinterpret_cast<std::uint64_t*>(&shared);
  for (std::size_t i = 0; i < sizeof(T) / sizeof(std::uint64_t); ++i) {
    __atomic_store_n(to + i, std::uint64_t{0}, __ATOMIC_RELAXED);
  }
}

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_SHARED_MEMORY_ACCESS_H_
