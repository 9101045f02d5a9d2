// SPDX-License-Identifier: GPL-2.0-only
// Making a store, and its public face.
#include "host-store/store/store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "host-store/store/store_impl.h"

namespace tmem {
namespace {

// A shard costs a few chunks begun and not filled: 100 KiB, 2.4 % of this. 16 shards are enough to
// keep a few dozen workers apart: the lock is held for some 100 ns of an operation's microseconds.
constexpr uint64_t kLimitBytesPerShard = 4 << 20;
constexpr uint32_t kMaxShards = 16;

// Landed pages cost twice what they do when coded, so the buffer is small; but a batch of a full
// lane should land at once.
constexpr uint64_t kLandingShare = 32;
constexpr uint64_t kMinLandingBytes = 16 * kPageBytes;
constexpr uint64_t kMaxLandingBytes = 8 << 20;

constexpr uint32_t kMaxGuests = 4096;
constexpr uint64_t kMaxLimitBytes = uint64_t{1} << 40;
// Where RecordNumbers end.
constexpr uint64_t kMaxRecordFileBytes = (uint64_t{1} << 32) * kRecordGranuleBytes;

template <typename Record>
constexpr uint64_t kChargedRecordBytes =
    ChargedBytes(kRecordChunkBytes) / RecordArena::RecordsPerChunk(sizeof(Record)) + 1;

// What one persistent put takes at most: the first page of its object in this shard, raw.
constexpr uint64_t kWorstPutBytes = PageSet::kWorstPageBytes + kChargedRecordBytes<ObjectRecord> +
                                    kChargedRecordBytes<BlockRecord> +
                                    kChargedRecordBytes<KeyRecord>;

}  // namespace

Store::Impl::Impl(const StoreOptions& options)
    : options_(options),
      budget_({.limit_bytes = options.limit_bytes,
               .pool_min_bytes = options.pool_min_bytes,
               .worst_case_bytes = kWorstPutBytes}),
      entries_(std::make_unique<GuestEntry[]>(size_t{options.max_guests} + 1)),
      // Some number between 1 and 2^31, so that a handle of an earlier process means nothing.
      next_generation_(static_cast<uint32_t>(tmem_mix(1, options.seed) >> 33) | 1) {}

Store::Impl::~Impl() {
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    if (entries_[slot].guest.load() != nullptr) RemoveGuest(GuestId{slot});
  }
}

Result<std::unique_ptr<Store::Impl>> Store::Impl::Create(const StoreOptions& options) {
  if (options.limit_bytes > kMaxLimitBytes || options.pool_min_bytes > options.limit_bytes ||
      options.max_guests == 0 || options.max_guests > kMaxGuests) {
    return Error{ErrorCode::kInvalidArgument, "store: limit or pool-min out of range"};
  }
  std::unique_ptr<Impl> impl(new Impl(options));
  impl->shard_count_ = static_cast<uint32_t>(std::bit_floor(
      std::clamp<uint64_t>(options.limit_bytes / kLimitBytesPerShard, 1, kMaxShards)));
  if (!impl->budget_.Charge(Account::kOverhead, options.overhead_bytes, Claim::kFixed)) {
    return Error{ErrorCode::kExhausted, "store: the overhead alone is over the limit"};
  }
  for (const Lifetime lifetime : {Lifetime::kEphemeral, Lifetime::kPersistent}) {
    if (auto made = impl->CreateIndex(lifetime); !made) return made.error();
  }
  uint64_t landing_bytes = options.landing_bytes;
  if (landing_bytes == 0) {
    landing_bytes =
        std::clamp(options.limit_bytes / kLandingShare, kMinLandingBytes, kMaxLandingBytes);
  }
  auto landing = LandingBuffer::Create(
      {.slots = static_cast<uint32_t>(std::max<uint64_t>(landing_bytes / kPageBytes, 1)),
       .max_guests = options.max_guests,
       .budget = &impl->budget_,
       .faults = options.faults});
  if (!landing) return landing.error();
  impl->landing_ = std::move(landing).value();
  impl->budget_.SetReclaimer([raw = impl.get()] { return raw->EvictSome(); });
  return impl;
}

Result<void> Store::Impl::CreateIndex(Lifetime lifetime) {
  const bool ephemeral = lifetime == Lifetime::kEphemeral;
  const uint64_t max_chunks =
      std::min(options_.limit_bytes / kPageBytes + 2, kMaxRecordFileBytes / kRecordChunkBytes);
  auto file =
      MemoryFile::Create({.name = ephemeral ? "tmem-ephemeral-index" : "tmem-persistent-index",
                          .stride_bytes = kRecordChunkBytes,
                          .max_chunks = static_cast<uint32_t>(max_chunks),
                          .account = Account::kMetadata,
                          .chunk_claim = ephemeral ? Claim::kEphemeral : Claim::kPromised,
                          .budget = &budget_,
                          .faults = options_.faults});
  if (!file) return file.error();
  const FileHead head{.magic = kFileMagic,
                      .kind = static_cast<uint32_t>(FileKind::kIndex),
                      .version = 1,
                      .hash_key = {}};
  std::memcpy((*file)->At(0), &head, sizeof(head));

  // Two fingerprints for each page the limit could hold raw.
  const uint64_t pages = options_.limit_bytes / kPageBytes / shard_count_;
  const uint64_t came_back_slots = ephemeral ? std::bit_ceil(std::max<uint64_t>(2 * pages, 64)) : 0;
  const uint64_t fixed_bytes =
      shard_count_ * (came_back_slots * sizeof(uint16_t) + sizeof(IndexShard)) +
      options_.max_guests * sizeof(GuestEntry);
  if (!budget_.Charge(Account::kMetadata, fixed_bytes, Claim::kFixed)) {
    return Error{ErrorCode::kExhausted, "store: the index alone is over the limit"};
  }
  fixed_metadata_bytes_ += fixed_bytes;

  Index& index = indexes_[IndexOf(lifetime)];
  index.file = std::move(file).value();
  for (uint32_t shard = 0; shard < shard_count_; ++shard) {
    index.shards.push_back(std::make_unique<IndexShard>(
        IndexShard::Options{.file = index.file.get(),
                            .lifetime = lifetime,
                            .shard = shard,
                            .max_guests = options_.max_guests,
                            .max_blocks = options_.limit_bytes / sizeof(BlockRecord) / shard_count_,
                            .seed = tmem_mix(options_.seed, 0x696e646578),
                            .came_back_slots = static_cast<uint32_t>(came_back_slots)}));
  }
  return Ok();
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::Create(const StoreOptions& options) {
  auto impl = Impl::Create(options);
  if (!impl) return impl.error();
  return std::unique_ptr<Store>(new Store(std::move(impl).value()));
}

Result<GuestId> Store::AddGuest(const GuestOptions& options) {
  return impl_->AddGuest(options);
}
void Store::RemoveGuest(GuestId guest) {
  impl_->RemoveGuest(guest);
}
void Store::ResetGuest(GuestId guest) {
  impl_->ResetGuest(guest);
}
Store::PoolOutcome Store::CreatePool(GuestId guest, PoolKind kind) {
  return impl_->CreatePool(guest, kind);
}
Store::FlushOutcome Store::DestroyPool(GuestId guest, PoolHandle pool) {
  return impl_->FinishFlush(guest, impl_->BeginDestroyPool(guest, pool));
}
FlushProgress Store::BeginDestroyPool(GuestId guest, PoolHandle pool) {
  return impl_->BeginDestroyPool(guest, pool);
}
void Store::BeginResetGuest(GuestId guest) {
  impl_->BeginResetGuest(guest);
}
void Store::RestartCounters(GuestId guest) {
  impl_->RestartCounters(guest);
}
bool Store::Reap(GuestId guest, FlushProgress& progress) {
  return impl_->Reap(guest, progress);
}
Outcome Store::Put(GuestId guest, const PageKey& key, PageView page, uint32_t tag) {
  return impl_->Put(guest, key, page, tag);
}
Outcome Store::PutFilled(GuestId guest, const PageKey& key, uint64_t fill_word, uint32_t tag) {
  return impl_->PutFilled(guest, key, fill_word, tag);
}
GetResult Store::Get(GuestId guest, const PageKey& key, PageBuffer out) {
  return impl_->Get(guest, key, out);
}
Store::FlushOutcome Store::Flush(GuestId guest, PoolHandle pool, const ObjectId& object,
                                 PageRange range, LaneFilter filter) {
  return impl_->FinishFlush(guest, BeginFlush(guest, pool, object, range, filter));
}
Store::FlushOutcome Store::FlushObject(GuestId guest, PoolHandle pool, const ObjectId& object,
                                       LaneFilter filter) {
  return impl_->FinishFlush(guest, BeginFlushObject(guest, pool, object, filter));
}
Store::FlushOutcome Store::FlushPool(GuestId guest, PoolHandle pool, LaneFilter filter) {
  return impl_->FinishFlush(guest, BeginFlushPool(guest, pool, filter));
}
FlushProgress Store::BeginFlush(GuestId guest, PoolHandle pool, const ObjectId& object,
                                PageRange range, LaneFilter filter) {
  if (range.count == 0) return {};
  const uint64_t last = range.first + range.count - 1;
  return impl_->BeginFlush(guest, pool, &object, range.first,
                           last < range.first ? UINT64_MAX : last, filter);
}
FlushProgress Store::BeginFlushObject(GuestId guest, PoolHandle pool, const ObjectId& object,
                                      LaneFilter filter) {
  return impl_->BeginFlush(guest, pool, &object, 0, UINT64_MAX, filter);
}
FlushProgress Store::BeginFlushPool(GuestId guest, PoolHandle pool, LaneFilter filter) {
  return impl_->BeginFlush(guest, pool, nullptr, 0, UINT64_MAX, filter);
}
size_t Store::ContinueFlush(GuestId guest, FlushProgress& progress) {
  return impl_->ContinueFlush(guest, progress);
}
void Store::SetAdmission(GuestId guest, Admission admission) {
  impl_->SetAdmission(guest, admission);
}
uint64_t Store::TopUpCredits(GuestId guest, uint64_t unused_at_most) {
  return impl_->TopUpCredits(guest, unused_at_most);
}
uint64_t Store::ReturnCredits(GuestId guest, uint64_t credits) {
  return impl_->ReturnCredits(guest, credits);
}
size_t Store::Settle(size_t max_pages) {
  return impl_->Settle(max_pages);
}
size_t Store::SettleOf(GuestId guest, size_t max_pages) {
  return impl_->SettleOf(guest, max_pages);
}
uint32_t Store::landed_of(GuestId guest) const {
  return impl_->landed_of(guest);
}
bool Store::MustSettle(GuestId guest) const {
  return impl_->MustSettle(guest);
}
Result<void> Store::Reserve(uint64_t bytes) {
  return impl_->Reserve(bytes);
}
void Store::Unreserve(uint64_t bytes) {
  impl_->Unreserve(bytes);
}
void Store::SetLimit(uint64_t limit_bytes) {
  impl_->SetLimit(limit_bytes);
}
bool Store::Shrink() {
  return impl_->Shrink();
}
uint64_t Store::limit_bytes() const {
  return impl_->limit_bytes();
}
uint64_t Store::MinLimitBytes() const {
  return impl_->MinLimitBytes();
}
void Store::EndEpoch() {
  impl_->EndEpoch();
}
uint64_t Store::epoch() const {
  return impl_->epoch();
}
uint64_t Store::used_bytes() const {
  return impl_->used_bytes();
}
StoreStatus Store::Status() const {
  return impl_->Status();
}
GuestStatus Store::StatusOf(GuestId guest) const {
  return impl_->StatusOf(guest);
}
std::vector<Store::MemoryFileView> Store::MemoryFiles() const {
  return impl_->MemoryFiles();
}
Result<void> Store::CheckInvariants() const {
  return impl_->CheckInvariants();
}

}  // namespace tmem
