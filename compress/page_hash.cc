// SPDX-License-Identifier: GPL-2.0-only
// Page hash: making the secret, choosing the instruction set, and the way for all CPUs.
#include "compress/page_hash.h"

#include <cstdio>
#include <cstdlib>

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "compress/same_filled.h"

namespace tmem {

static_assert(PageHasher::kSecretBytes == XXH_SECRET_DEFAULT_SIZE);

PageHasher::PageHasher(std::span<const std::byte> key) {
  const XXH_errorcode result =
      XXH3_generateSecret(secret_.data(), secret_.size(), key.data(), key.size());
  if (result != XXH_OK) {
    std::fprintf(stderr, "tmem: XXH3 refuses to make a secret\n");
    std::abort();
  }
}

PageHash PageHasher::Hash(PageView page) const {
  static const bool kHasAvx2 = internal::CpuHasAvx2();
  if (!kHasAvx2) return internal::HashPagePortable(page, secret_);
  PageHash hash;
  internal::HashPageAvx2(page.data(), secret_.data(), &hash.low, &hash.high);
  return hash;
}

namespace internal {

PageHash HashPagePortable(PageView page, PageSecret secret) {
  const XXH128_hash_t hash =
      XXH3_128bits_withSecret(page.data(), page.size(), secret.data(), secret.size());
  return {hash.low64, hash.high64};
}

}  // namespace internal
}  // namespace tmem
