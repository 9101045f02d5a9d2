// SPDX-License-Identifier: GPL-2.0-only
// zstd with reused contexts.
#include "compress/zstd_codec.h"

#include <zstd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace tmem {
namespace {

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "tmem: zstd: %s\n", what);
  std::abort();
}

void SetOrDie(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  const std::size_t result = ZSTD_CCtx_setParameter(context, parameter, value);
  if (ZSTD_isError(result) != 0) Die(ZSTD_getErrorName(result));
}

}  // namespace

void ZstdCodec::FreeContext::operator()(ZSTD_CCtx_s* context) const {
  ZSTD_freeCCtx(context);
}

void ZstdCodec::FreeContext::operator()(ZSTD_DCtx_s* context) const {
  ZSTD_freeDCtx(context);
}

ZstdCodec::ZstdCodec(int level)
    : compress_context_(ZSTD_createCCtx()), decompress_context_(ZSTD_createDCtx()) {
  if (!compress_context_ || !decompress_context_) Die("no memory for a context");
  SetOrDie(compress_context_.get(), ZSTD_c_compressionLevel, level);
  // The store has a checksum over the page itself.
  SetOrDie(compress_context_.get(), ZSTD_c_checksumFlag, 0);
  // The first page makes zstd allocate its tables; pages after it are of the same size and reuse
  // them, so that nothing is allocated when memory is short.
  const std::array<std::byte, kPageBytes> page{};
  std::array<std::byte, kPageBytes> scratch;
  if (!Compress(page, scratch).fits()) Die("no memory for its tables");
}

CompressOutcome ZstdCodec::Compress(PageView page, std::span<std::byte> dest) {
  if (dest.empty()) return CompressOutcome::DoesNotFit();
  const std::size_t bytes =
      ZSTD_compress2(compress_context_.get(), dest.data(), dest.size(), page.data(), page.size());
  // Any other failure leaves the page as good as one that does not fit: it is kept raw.
  if (ZSTD_isError(bytes) != 0) return CompressOutcome::DoesNotFit();
  return CompressOutcome::Fits(bytes);
}

DecompressOutcome ZstdCodec::Decompress(std::span<const std::byte> source, PageBuffer page) {
  if (source.empty()) return DecompressOutcome::kCorrupt;
  const std::size_t bytes = ZSTD_decompressDCtx(decompress_context_.get(), page.data(), page.size(),
                                                source.data(), source.size());
  return bytes == kPageBytes ? DecompressOutcome::kPage : DecompressOutcome::kCorrupt;
}

std::size_t ZstdCodec::memory_bytes() const {
  return ZSTD_sizeof_CCtx(compress_context_.get()) + ZSTD_sizeof_DCtx(decompress_context_.get());
}

}  // namespace tmem
