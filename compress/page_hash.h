// SPDX-License-Identifier: GPL-2.0-only
// Keyed content hash of a page: finds duplicates, and is the checksum that a get verifies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/page.h"

namespace tmem {

struct PageHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const PageHash&, const PageHash&) = default;
};

// XXH3, 128 bits, under a secret made of a key. Whoever does not know the key cannot aim at
// collisions in advance; still it is no cryptographic hash, so two pages are shared only after a
// compare of all bytes. Immutable, safe from any thread. About 80 ns a hot page with AVX2, 200
// without; both give the same hash.
class PageHasher {
 public:
  static constexpr std::size_t kSecretBytes = 192;  // XXH_SECRET_DEFAULT_SIZE

  // `key` has any length but 0; its bytes are random and stay in this process.
  explicit PageHasher(std::span<const std::byte> key);

  PageHash Hash(PageView page) const;

 private:
  // XXH3 reads its secret in vectors; an aligned one is read faster.
  alignas(64) std::array<std::byte, kSecretBytes> secret_;
};

namespace internal {

using PageSecret = std::span<const std::byte, PageHasher::kSecretBytes>;
PageHash HashPagePortable(PageView page, PageSecret secret);

// Plain types only: this one is compiled with AVX2, and an inline function of a header that was
// instantiated there must not end up in code for all CPUs.
void HashPageAvx2(const void* page, const void* secret, std::uint64_t* low, std::uint64_t* high);

}  // namespace internal
}  // namespace tmem
