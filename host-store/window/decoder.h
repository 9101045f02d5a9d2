// SPDX-License-Identifier: GPL-2.0-only
// The one door for what a guest posts: a copied descriptor becomes a checked operation or a
// refusal.
#ifndef HOST_STORE_WINDOW_DECODER_H_
#define HOST_STORE_WINDOW_DECODER_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "abi/tmem_abi.h"
#include "host-store/store/store.h"

namespace tmem {

namespace op {

struct Nop {};
struct Put {
  PageKey key;
  std::uint32_t slot;
  std::uint32_t tag;
};
struct PutFilled {
  PageKey key;
  std::uint64_t fill_word;
  std::uint32_t tag;
};
struct Get {
  PageKey key;
  std::uint32_t slot;
};
struct Flush {
  PoolHandle pool;
  ObjectId object;
  PageRange range;
};
struct FlushObject {
  PoolHandle pool;
  ObjectId object;
};
struct FlushPool {
  PoolHandle pool;
};
struct PoolCreate {
  PoolKind kind;
};
struct PoolDestroy {
  PoolHandle pool;
};
struct CreditReturn {
  std::uint64_t credits;
};
struct Report {
  std::uint32_t slot;
  std::uint32_t ranges;
};
// That the host module has answered already: only to be counted.
struct ReportDone {
  tmem_status status;
  std::uint64_t dropped_bytes;
};
struct Shrunk {
  std::uint64_t pages;
  tmem_shrink_outcome outcome;
};
struct Drained {
  std::uint64_t pages;
  tmem_shrink_outcome outcome;
};
// Nothing is done but this: `status` is answered, and if `gone` is set the page under that key is
// removed first, because a put of it was dropped (P2).
struct Refused {
  tmem_status status;
  std::optional<PageKey> gone;
};

}  // namespace op

using Operation = std::variant<op::Nop, op::Put, op::PutFilled, op::Get, op::Flush, op::FlushObject,
                               op::FlushPool, op::PoolCreate, op::PoolDestroy, op::CreditReturn,
                               op::Report, op::ReportDone, op::Shrunk, op::Drained, op::Refused>;

// The lane that a descriptor came through, and what its guest has chosen.
struct LaneContext {
  std::uint32_t lane;
  std::uint32_t key_lanes;      // lane == key_lanes: the control lane
  std::uint32_t slots;          // of this lane
  std::uint64_t features;       // chosen at registration
  bool module_reports = false;  // every report has gone through the host module
};

// A pure function of its arguments; `desc` is the host's own copy. Every field is checked (X1), the
// lane of the key and the slot too, so that whatever comes out may be executed as it stands.
// Whether the pool exists is for the store to say.
Operation Decode(const tmem_desc& desc, const LaneContext& lane);

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_DECODER_H_
