// SPDX-License-Identifier: GPL-2.0-only
// What a channel does for each checked operation.
#include <algorithm>
#include <type_traits>

#include "host-store/window/channel.h"
#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

// The wire's statuses and the store's outcomes share their numbers.
tmem_status StatusOf(Outcome outcome) {
  return static_cast<tmem_status>(outcome);
}

// A slot is a page; the decoder has bounded the ranges of a report so that they fit.
tmem_report_range* RangesOf(const WindowView& window, std::uint32_t slot) {
  static_assert(TMEM_MAX_REPORT_RANGES * sizeof(tmem_report_range) <= TMEM_PAGE_BYTES);
  return reinterpret_cast<tmem_report_range*>(window.lane(window.control_lane()).Slot(slot).data());
}

void FillSlot(PageBuffer slot, std::uint64_t word) {
  for (std::size_t at = 0; at < kPageBytes; at += sizeof word) {
    std::memcpy(slot.data() + at, &word, sizeof word);
  }
}

}  // namespace

std::optional<Channel::Completion> Channel::Execute(std::uint32_t lane, const tmem_desc& desc,
                                                    tmem_desc& entry) {
  const std::uint32_t key_lanes = window_.geometry().key_lanes;
  const Operation operation = Decode(
      desc, {lane, key_lanes, window_.lane(lane).slots(), features_, options_.module_reports});
  const LaneFilter filter{lane, key_lanes};
  const auto flush = [&](const FlushProgress& begun) {
    lanes_[lane].flush = LongFlush{desc, begun};
    return ContinueFlush(lane);
  };
  return std::visit(
      [&](const auto& checked) -> std::optional<Completion> {
        using T = std::decay_t<decltype(checked)>;
        if constexpr (std::is_same_v<T, op::Nop>) {
          return Completion{.status = TMEM_STATUS_OK};
        } else if constexpr (std::is_same_v<T, op::Put>) {
          return Put(lane, checked);
        } else if constexpr (std::is_same_v<T, op::PutFilled>) {
          return PutFilled(checked);
        } else if constexpr (std::is_same_v<T, op::Get>) {
          return Get(lane, checked);
        } else if constexpr (std::is_same_v<T, op::Flush>) {
          return flush(
              store_.BeginFlush(guest_, checked.pool, checked.object, checked.range, filter));
        } else if constexpr (std::is_same_v<T, op::FlushObject>) {
          return flush(store_.BeginFlushObject(guest_, checked.pool, checked.object, filter));
        } else if constexpr (std::is_same_v<T, op::FlushPool>) {
          return flush(store_.BeginFlushPool(guest_, checked.pool, filter));
        } else if constexpr (std::is_same_v<T, op::PoolCreate>) {
          return CreatePool(checked);
        } else if constexpr (std::is_same_v<T, op::PoolDestroy>) {
          return flush(DestroyPool(checked));
        } else if constexpr (std::is_same_v<T, op::CreditReturn>) {
          return ReturnCredits(checked);
        } else if constexpr (std::is_same_v<T, op::Report>) {
          return BeginReport(checked, entry);
        } else if constexpr (std::is_same_v<T, op::ReportDone>) {
          return CountReport(checked);
        } else if constexpr (std::is_same_v<T, op::Shrunk>) {
          return OnShrunk(checked);
        } else if constexpr (std::is_same_v<T, op::Drained>) {
          return OnDrained(checked);
        } else {
          return Refuse(checked);
        }
      },
      operation);
}

// One piece.
std::optional<Channel::Completion> Channel::ContinueFlush(std::uint32_t lane) {
  FlushProgress& progress = lanes_[lane].flush->progress;
  if (!progress.done) {
    const FlushProgress before = progress;
    store_.ContinueFlush(guest_, progress);
    units_ += UnitsSince(before, progress);
    if (!progress.done) return std::nullopt;
  }
  const Completion completion{.status = StatusOf(progress.outcome), .value = progress.pages};
  lanes_[lane].flush.reset();
  return completion;
}

Channel::Completion Channel::Put(std::uint32_t lane, const op::Put& put) {
  if (TagOfEphemeral(put.key, put.tag)) return Refuse({TMEM_STATUS_BAD_FIELD, put.key});
  if (store_.MustSettle(guest_)) units_ += store_.SettleOf(guest_, 1) * kSettledPageUnits;
  units_ += kLandedPageUnits;
  // The store reads the slot exactly once, into its landing buffer: that is the protective copy.
  const PageView page = window_.lane(lane).Slot(put.slot);
  return FinishPut(put.key, store_.Put(guest_, put.key, page, put.tag));
}

Channel::Completion Channel::PutFilled(const op::PutFilled& put) {
  if (TagOfEphemeral(put.key, put.tag)) return Refuse({TMEM_STATUS_BAD_FIELD, put.key});
  return FinishPut(put.key, store_.PutFilled(guest_, put.key, put.fill_word, put.tag));
}

Channel::Completion Channel::FinishPut(const PageKey& key, Outcome outcome) {
  if (outcome == Outcome::kOk && has_persistent_pool_) {
    const Pool* pool = FindPool(key.pool);
    if (pool != nullptr && pool->kind == PoolKind::kPersistent) ++credits_spent_;
  }
  return {.status = StatusOf(outcome)};
}

// A tag belongs to persistent puts only; a field that an operation does not use is zero (X1).
bool Channel::TagOfEphemeral(const PageKey& key, std::uint32_t tag) {
  if (tag == 0) return false;
  const Pool* pool = FindPool(key.pool);
  return pool != nullptr && pool->kind == PoolKind::kEphemeral;
}

Channel::Completion Channel::Get(std::uint32_t lane, const op::Get& get) {
  const PageBuffer slot = window_.lane(lane).Slot(get.slot);
  const GetResult result = store_.Get(guest_, get.key, slot);
  Completion completion{.status = StatusOf(result.outcome)};
  if (result.outcome != Outcome::kOk) return completion;
  completion.tag = result.tag;
  completion.value = get.slot;
  if (!result.filled) {
    units_ += kGotPageUnits;
    return completion;
  }
  if ((features_ & TMEM_FEATURE_FILL) != 0) {
    completion.flags = TMEM_DESC_FILL;
    completion.value = result.fill_word;
  } else {
    FillSlot(slot, result.fill_word);
  }
  return completion;
}

Channel::Completion Channel::Refuse(const op::Refused& refused) {
  if (refused.gone) {
    const PageKey& key = *refused.gone;
    // No lane filter: the decoder has checked that the key is of this lane.
    (void)store_.Flush(guest_, key.pool, key.object, {key.index, 1}, {0, 1});
  }
  return {.status = refused.status};
}

Channel::Completion Channel::CreatePool(const op::PoolCreate& create) {
  const Store::PoolOutcome created = store_.CreatePool(guest_, create.kind);
  if (created.outcome != Outcome::kOk) return {.status = StatusOf(created.outcome)};
  pools_.push_back({created.pool, create.kind});
  has_persistent_pool_ |= create.kind == PoolKind::kPersistent;
  return {.status = TMEM_STATUS_OK, .value = static_cast<std::uint64_t>(created.pool)};
}

FlushProgress Channel::DestroyPool(const op::PoolDestroy& destroy) {
  const FlushProgress begun = store_.BeginDestroyPool(guest_, destroy.pool);
  std::erase_if(pools_, [&](const Pool& pool) { return pool.handle == destroy.pool; });
  has_persistent_pool_ = std::any_of(pools_.begin(), pools_.end(), [](const Pool& pool) {
    return pool.kind == PoolKind::kPersistent;
  });
  return begun;
}

Channel::Completion Channel::ReturnCredits(const op::CreditReturn& back) {
  const std::uint64_t taken = store_.ReturnCredits(guest_, back.credits);
  credits_spent_ += taken;
  return {.status = TMEM_STATUS_OK, .value = taken};
}

// The field of the host page is lower before the guest sees its answer.
Channel::Completion Channel::OnShrunk(const op::Shrunk& shrunk) {
  const std::uint64_t left_pages = options_.shrink->OnShrunk(shrunk.pages, shrunk.outcome);
  PublishShrink();
  return {.status = TMEM_STATUS_OK, .value = left_pages};
}

Channel::Completion Channel::OnDrained(const op::Drained& drained) {
  options_.shrink->OnDrained(drained.pages, drained.outcome);
  return {.status = TMEM_STATUS_OK, .value = store_.StatusOf(guest_).persistent_pages};
}

// ---- reports ----------------------------------------------------------------------------------

// The ranges are copied after the report was taken: before that they may be another report's [R1].
std::optional<Channel::Completion> Channel::BeginReport(const op::Report& report,
                                                        tmem_desc& entry) {
  if (!CompareSwap(entry.state, tmem_u32{TMEM_REPORT_POSTED}, tmem_u32{TMEM_REPORT_TAKEN})) {
    return Completion{.status = TMEM_STATUS_NOT_TAKEN};
  }
  std::vector<tmem_report_range> ranges(report.ranges);
  const tmem_report_range* from = RangesOf(window_, report.slot);
  for (tmem_report_range& range : ranges) range = CopyOnce(*from++);
  units_ += report.ranges;
  report_ = report;
  options_.reports->Begin(std::move(ranges));
  return ContinueReport(entry);
}

std::optional<Channel::Completion> Channel::ContinueReport(tmem_desc& entry) {
  if (!options_.reports->Ready()) return std::nullopt;
  const ReportSink::Outcome outcome = options_.reports->Take();
  tmem_report_range* to = RangesOf(window_, report_->slot);
  for (const tmem_status status : outcome.ranges) {
    StoreRelaxed((to++)->status, static_cast<tmem_u32>(status));
  }
  StoreRelease(entry.state, tmem_u32{TMEM_REPORT_ANSWERED});
  report_.reset();
  units_ += kDescriptorUnits;
  counters_.reported_bytes.Add(outcome.dropped_bytes);
  counters_.report_cpu_ns.Add(outcome.cpu_ns);
  return Completion{.status = outcome.status, .value = outcome.dropped_bytes};
}

Channel::Completion Channel::CountReport(const op::ReportDone& report) {
  counters_.reported_bytes.Add(report.dropped_bytes);
  return {.status = report.status, .value = report.dropped_bytes};
}

// Nobody is told: a channel that starts over, or ends, has nobody to tell.
void Channel::DropReport() {
  if (!report_) return;
  options_.reports->Cancel();
  report_.reset();
}

const Channel::Pool* Channel::FindPool(PoolHandle handle) const {
  for (const Pool& pool : pools_) {
    if (pool.handle == handle) return &pool;
  }
  return nullptr;
}

}  // namespace tmem
