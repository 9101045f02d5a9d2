// SPDX-License-Identifier: GPL-2.0-only
// The stored pages of one trust domain and one kind: coded, shared, counted.
#include "host-store/store/page_set.h"

#include <atomic>
#include <cstring>
#include <unordered_map>

#include "compress/page_codec.h"
#include "compress/same_filled.h"

namespace tmem {
namespace {

// Rounds of eviction for one ephemeral page, before it is refused: a put's time must be bounded
// even when what is evicted leaves no slab empty.
constexpr int kMaxReclaims = 64;

uint32_t MaxRecordChunks(uint64_t limit_bytes) {
  return static_cast<uint32_t>(limit_bytes / kPageBytes + 2);
}

uint32_t MaxSlabs(uint64_t limit_bytes) {
  return static_cast<uint32_t>(limit_bytes / (kMinSlabPages * kPageBytes) + 2);
}

uint32_t HighBits(const PageHash& hash) {
  return static_cast<uint32_t>(hash.high);
}

}  // namespace

Result<std::unique_ptr<PageSet>> PageSet::Create(const Options& options) {
  const uint64_t limit = options.budget->max_limit_bytes();
  const Claim claim =
      options.lifetime == Lifetime::kEphemeral ? Claim::kEphemeral : Claim::kPromised;
  // What is persistent gives all back at once: it may be promised again.
  const auto spares = options.lifetime == Lifetime::kEphemeral ? MemoryFile::Spares::kSome
                                                               : MemoryFile::Spares::kNone;
  auto records = MemoryFile::Create({.name = options.name + "-pages",
                                     .stride_bytes = kRecordChunkBytes,
                                     .max_chunks = MaxRecordChunks(limit),
                                     .account = Account::kMetadata,
                                     .chunk_claim = claim,
                                     .budget = options.budget,
                                     .faults = options.faults});
  if (!records) return records.error();
  auto slabs = MemoryFile::Create({.name = options.name + "-slabs",
                                   .stride_bytes = kSlabStrideBytes,
                                   .max_chunks = MaxSlabs(limit),
                                   .account = Account::kSlabs,
                                   .chunk_claim = claim,
                                   .budget = options.budget,
                                   .faults = options.faults,
                                   .spares = spares});
  if (!slabs) return slabs.error();
  FileHead head{.magic = kFileMagic,
                .kind = static_cast<uint32_t>(FileKind::kPages),
                .version = 1,
                .hash_key = options.hash_key};
  std::memcpy((*records)->At(0), &head, sizeof(head));
  head.kind = static_cast<uint32_t>(FileKind::kSlabs);
  std::memcpy((*slabs)->At(0), &head, sizeof(head));
  return std::unique_ptr<PageSet>(
      new PageSet(options, std::move(records).value(), std::move(slabs).value()));
}

uint64_t PageSet::FixedBytes(uint64_t max_limit_bytes) {
  return MemoryFile::FixedBytes(MaxRecordChunks(max_limit_bytes)) +
         MemoryFile::FixedBytes(MaxSlabs(max_limit_bytes));
}

PageSet::PageSet(const Options& options, std::unique_ptr<MemoryFile> records,
                 std::unique_ptr<MemoryFile> slabs)
    : lifetime_(options.lifetime),
      hasher_(options.hash_key),
      budget_(*options.budget),
      faults_(options.faults),
      records_file_(std::move(records)),
      slabs_file_(std::move(slabs)),
      pages_(*records_file_, RecordType::kPage, sizeof(PageRecord)),
      heap_(*records_file_, *slabs_file_),
      table_(*records_file_, Traits{records_file_.get()},
             options.budget->max_limit_bytes() / (sizeof(PageRecord) + kSlotStepBytes)) {}

Claim PageSet::NeededClaim() const {
  return lifetime_ == Lifetime::kPersistent ? Claim::kPromised : Claim::kEphemeral;
}

Claim PageSet::OptionalClaim() const {
  return lifetime_ == Lifetime::kPersistent ? Claim::kOptional : Claim::kEphemeral;
}

Holder PageSet::Store(PageView page, PageScratch& scratch) {
  if (const auto word = SameFilledWord(page)) return {HolderKind::kFilled, *word};
  const PageHash hash = hasher_.Hash(page);
  if (const RecordNumber shared = FindShare(page, hash, scratch)) {
    return {HolderKind::kStored, shared};
  }

  CompressOutcome outcome = CompressOutcome::DoesNotFit();
  if (faults_ == nullptr || !faults_->Fails(FaultPlan::Point::kCompress)) {
    outcome = scratch.lz4.Compress(page, std::span(scratch.coded).first(kMaxCompressedBytes));
  }
  // A page that no codec takes, for whatever reason, is kept raw: a codec refuses no put.
  const Codec codec = outcome.fits() ? Codec::kLz4 : Codec::kRaw;
  const size_t length = outcome.fits() ? outcome.bytes() : kPageBytes;
  const RecordNumber number = AllocatePage(ClassFor(length));
  if (number == 0) return {};

  // Nobody else knows of the record yet.
  PageRecord& record = Record(number);
  record.hash_low = hash.low;
  record.hash_high = HighBits(hash);
  record.length_and_codec = PackLengthAndCodec(length, codec);
  const std::byte* coded = outcome.fits() ? scratch.coded.data() : page.data();
  std::memcpy(Bytes(record), coded, length);
  bool wants_segment = false;
  {
    MutexLock lock(mutex_);
    table_.Insert(hash.low, number);
    CountLocked(record, +1);
    ++figures_.shares;
    wants_segment = table_.WantsSegment();
  }
  if (wants_segment) GrowTable();
  return {HolderKind::kStored, number};
}

void PageSet::CountLocked(const PageRecord& page, int64_t sign) {
  uint64_t& figure = CodecOf(page) == Codec::kRaw ? figures_.raw : figures_.compressed;
  figure += static_cast<uint64_t>(sign);
}

// A share of a page with these very bytes, or 0.
RecordNumber PageSet::FindShare(PageView page, const PageHash& hash, PageScratch& scratch) {
  RecordNumber found = 0;
  {
    MutexLock lock(mutex_);
    found = table_.Find(hash.low, [&](RecordNumber number) {
      const PageRecord& record = Record(number);
      return record.hash_low == hash.low && record.hash_high == HighBits(hash) &&
             record.sharers != 0;
    });
    if (found == 0) return 0;
    PageRecord& record = Record(found);
    ++record.sharers;
    ++figures_.shares;
    figures_.saved_bytes += LengthOf(record);
  }
  PageView other = page;
  if (Decode(Record(found), scratch, other) == DecompressOutcome::kPage &&
      std::memcmp(page.data(), other.data(), kPageBytes) == 0) {
    return found;
  }
  Drop(found);
  return 0;
}

DecompressOutcome PageSet::Decode(const PageRecord& page, PageScratch& scratch,
                                  PageView& out) const {
  const std::byte* coded = Bytes(page);
  if (CodecOf(page) == Codec::kRaw) {
    out = PageView(coded, kPageBytes);
    return DecompressOutcome::kPage;
  }
  out = PageView(scratch.decoded);
  return Lz4Codec::Decompress(std::span(coded, LengthOf(page)), PageBuffer(scratch.decoded));
}

std::optional<PageView> PageSet::Fetch(RecordNumber number, PageScratch& scratch) const {
  const PageRecord& record = Record(number);
  PageView page(scratch.decoded);
  if (Decode(record, scratch, page) != DecompressOutcome::kPage) return std::nullopt;
  if (faults_ != nullptr && faults_->Fails(FaultPlan::Point::kDecompress)) return std::nullopt;
  const PageHash hash = hasher_.Hash(page);
  if (hash.low != record.hash_low || HighBits(hash) != record.hash_high) return std::nullopt;
  return page;
}

size_t PageSet::StoredBytes(RecordNumber page) const {
  return LengthOf(Record(page));
}

PageSet::Lack PageSet::TryAllocateLocked(size_t size_class, RecordNumber& page) {
  if (pages_.free_records() == 0) return Lack::kPageRecord;
  if (!heap_.HasFreeSlot(size_class)) {
    return heap_.records().free_records() == 0 ? Lack::kSlabRecord : Lack::kSlab;
  }
  const SlabSlot slot = *heap_.Allocate(size_class);
  page = pages_.Allocate();
  PageRecord& record = Record(page);
  record.sharers = 1;
  record.slab = slot.slab;
  record.slot = slot.slot;
  return Lack::kNothing;
}

// A record with a slot of this class, or of the raw one if keeping all promises asks for it.
RecordNumber PageSet::AllocatePage(size_t size_class) {
  for (int reclaims = 0;;) {
    RecordNumber page = 0;
    Lack lack = Lack::kNothing;
    {
      MutexLock lock(mutex_);
      lack = TryAllocateLocked(size_class, page);
    }
    if (lack == Lack::kNothing) return page;
    if (Grow(lack, size_class)) continue;
    if (lifetime_ == Lifetime::kPersistent) {
      if (lack != Lack::kSlab || size_class == kRawClass) return 0;
      size_class = kRawClass;
    } else if (++reclaims > kMaxReclaims || !budget_.Reclaim()) {
      return 0;
    }
  }
}

bool PageSet::Grow(Lack lack, size_t size_class) {
  if (lack != Lack::kSlab) {
    const ChunkNumber chunk = records_file_->Allocate(kRecordChunkBytes, NeededClaim());
    if (chunk == kNoChunk) return false;
    bool needed = false;
    {
      MutexLock lock(mutex_);
      RecordArena& arena = lack == Lack::kPageRecord ? pages_ : heap_.records();
      needed = arena.free_records() == 0;
      if (needed) arena.AddChunk(chunk);
    }
    // Another thread was faster, or freed a record: no chunk may stay without ever being used.
    if (!needed) records_file_->Free(chunk, kRecordChunkBytes);
    return true;
  }
  // A slab of any class but raw may be larger than what one put was promised.
  const Claim claim = size_class == kRawClass ? NeededClaim() : OptionalClaim();
  const size_t bytes = kSizeClassTable[size_class].slab_bytes;
  const ChunkNumber chunk = slabs_file_->Allocate(bytes, claim);
  if (chunk == kNoChunk) return false;
  bool added = false;
  {
    MutexLock lock(mutex_);
    added = !heap_.HasFreeSlot(size_class) && heap_.AddSlab(size_class, chunk);
  }
  // Another thread was faster with a slab, or took the last record for one: the caller looks again.
  if (!added) slabs_file_->Free(chunk, bytes);
  return true;
}

void PageSet::GrowTable() {
  const ChunkNumber chunk =
      records_file_->Allocate(ChainTable<Traits>::kSegmentBytes, OptionalClaim());
  if (chunk == kNoChunk) return;
  {
    MutexLock lock(mutex_);
    if (table_.WantsSegment()) {
      table_.AddSegment(chunk);
      return;
    }
  }
  records_file_->Free(chunk, ChainTable<Traits>::kSegmentBytes);
}

void PageSet::Pin(RecordNumber page) {
  std::atomic_ref<uint32_t>(Record(page).pins).fetch_add(1);
}

void PageSet::Unpin(RecordNumber page) {
  Garbage garbage;
  {
    MutexLock lock(mutex_);
    std::atomic_ref<uint32_t>(Record(page).pins).fetch_sub(1);
    if (!FreeIfUnusedLocked(page, garbage)) return;
  }
  FreeGarbage(garbage);
}

void PageSet::Drop(RecordNumber page) {
  Garbage garbage;
  {
    MutexLock lock(mutex_);
    PageRecord& record = Record(page);
    --figures_.shares;
    if (--record.sharers != 0) {
      figures_.saved_bytes -= LengthOf(record);
      return;
    }
    if (!FreeIfUnusedLocked(page, garbage)) return;
  }
  FreeGarbage(garbage);
}

// A share is never found again once there is none, and a pin is only taken while there is one: so a
// page that is unused stays so.
bool PageSet::FreeIfUnusedLocked(RecordNumber page, Garbage& garbage) {
  PageRecord& record = Record(page);
  if (record.sharers != 0 || std::atomic_ref<uint32_t>(record.pins).load() != 0) return false;
  CountLocked(record, -1);
  table_.Erase(record.hash_low, page, garbage.segments);
  garbage.slab = heap_.Free({record.slab, record.slot}, garbage.records);
  pages_.Free(page, garbage.records);
  return true;
}

void PageSet::FreeGarbage(Garbage& garbage) {
  garbage.records.FreeAll(*records_file_, kRecordChunkBytes);
  garbage.segments.FreeAll(*records_file_, ChainTable<Traits>::kSegmentBytes);
  if (garbage.slab.bytes != 0) slabs_file_->Free(garbage.slab.chunk, garbage.slab.bytes);
}

bool PageSet::Trim() {
  for (bool trimmed = false;; trimmed = true) {
    Garbage garbage;
    {
      MutexLock lock(mutex_);
      garbage.slab = heap_.TakeUnused(garbage.records);
      pages_.Trim(garbage.records);
      heap_.records().Trim(garbage.records);
    }
    if (garbage.slab.bytes == 0 && garbage.records.empty()) return trimmed;
    FreeGarbage(garbage);
  }
}

PageSet::Figures PageSet::figures() const {
  MutexLock lock(mutex_);
  Figures figures = figures_;
  figures.slab_bytes = heap_.charged_bytes() + slabs_file_->spare_bytes();
  figures.record_bytes =
      (pages_.chunks() + heap_.records().chunks()) * ChargedBytes(kRecordChunkBytes) +
      table_.segments() * ChargedBytes(ChainTable<Traits>::kSegmentBytes);
  return figures;
}

Result<void> PageSet::Check() const {
  MutexLock lock(mutex_);
  Figures counted;
  uint64_t records = 0;
  std::unordered_map<RecordNumber, uint64_t> live_slots;
  table_.ForEach([&](RecordNumber number) {
    const PageRecord& record = Record(number);
    ++records;
    ++(CodecOf(record) == Codec::kRaw ? counted.raw : counted.compressed);
    counted.shares += record.sharers;
    counted.saved_bytes += (uint64_t{record.sharers} - 1) * LengthOf(record);
    ++live_slots[record.slab];
  });
  if (counted != figures_) {
    return Error{ErrorCode::kInternal, records_file_->name() + ": figures differ from records"};
  }
  if (records != pages_.live_records()) {
    return Error{ErrorCode::kInternal, records_file_->name() + ": a record is not in the table"};
  }
  if (live_slots.size() > heap_.records().live_records()) {
    return Error{ErrorCode::kInternal, records_file_->name() + ": a page in no slab"};
  }
  for (const auto& [slab, live] : live_slots) {
    if (heap_.Slab(slab).live != live) {
      return Error{ErrorCode::kInternal, records_file_->name() + ": a slab's slots do not add up"};
    }
  }
  return Ok();
}

}  // namespace tmem
