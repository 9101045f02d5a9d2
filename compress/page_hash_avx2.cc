// SPDX-License-Identifier: GPL-2.0-only
// Page hash with AVX2; this file alone is compiled with -mavx2, see page_hash.h.
#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "compress/page_hash.h"

static_assert(XXH_VECTOR == XXH_AVX2, "compile this file with -mavx2");

namespace tmem::internal {

void HashPageAvx2(const void* page, const void* secret, std::uint64_t* low, std::uint64_t* high) {
  const XXH128_hash_t hash =
      XXH3_128bits_withSecret(page, kPageBytes, secret, PageHasher::kSecretBytes);
  *low = hash.low64;
  *high = hash.high64;
}

}  // namespace tmem::internal
