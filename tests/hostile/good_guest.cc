// SPDX-License-Identifier: GPL-2.0-only
// Works against a model of its own pages.
#include "tests/hostile/good_guest.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tmem {
namespace {

// Few enough that it stays the lightest guest: with the attacker over its share, its pages stay.
constexpr std::uint64_t kEphemeralKeys = 512;
constexpr std::uint64_t kPersistentKeys = 512;
constexpr std::uint32_t kMaxFlush = 3;

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

GoodGuest::GoodGuest(const std::string& socket, std::uint64_t seed)
    : client_(TestIvshmemClient::Connect(socket).value()),
      guest_(client_.window(), [this] { client_.Kick(); }),
      random_(seed),
      thread_([this] { Run(); }) {}

GoodGuest::~GoodGuest() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

std::vector<std::uint64_t> GoodGuest::TakeGetNs() {
  MutexLock lock(mutex_);
  return std::exchange(get_ns_, {});
}

GoodGuestReport GoodGuest::Stop() {
  stop_.store(true);
  thread_.join();
  std::vector<std::uint64_t> indices;
  for (const auto& [index, stored] : persistent_) indices.push_back(index);
  for (const std::uint64_t index : indices) GetPersistent(index);
  return report_;
}

void GoodGuest::Run() {
  if (guest_.Register() != TMEM_STATUS_OK) ++report_.refused;
  ephemeral_pool_ = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  persistent_pool_ = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  if (ephemeral_pool_ == 0 || persistent_pool_ == 0) ++report_.refused;
  // An answer that never came is the end: what TestGuest waited for is a minute each time.
  while (!stop_.load() && report_.unanswered == 0) Step();
}

void GoodGuest::Step() {
  const std::uint64_t key = random_();
  const std::uint64_t ephemeral = key % kEphemeralKeys;
  const std::uint64_t persistent = key % kPersistentKeys;
  switch (random_() % 16) {
    case 0: return FlushSome(ephemeral_pool_, ephemeral_, ephemeral);
    case 1: return FlushSome(persistent_pool_, persistent_, persistent);
    case 2:
    case 3: return PutPersistent(persistent);
    case 4:
    case 5:
    case 6:
    case 7: return PutEphemeral(ephemeral);
    case 8:
    case 9:
    case 10:
    case 11: return GetEphemeral(ephemeral);
    default: return GetPersistent(persistent);
  }
}

TestPage GoodGuest::PageFor(std::uint64_t stamp) const {
  return MakeTestPage(stamp * 7919 + 13,
                      stamp % 2 == 0 ? TestPageKind::kRandom : TestPageKind::kCompressible);
}

void GoodGuest::Account(tmem_status status, std::uint64_t start_ns) {
  ++report_.ops;
  report_.max_ns = std::max(report_.max_ns, NowNs() - start_ns);
  if (status == TMEM_STATUS_NONE) ++report_.unanswered;
}

void GoodGuest::PutEphemeral(std::uint64_t index) {
  const std::uint64_t stamp = ++stamps_;
  const TestPage page = PageFor(stamp);
  const std::uint64_t start_ns = NowNs();
  const tmem_status status = guest_.Put({ephemeral_pool_, 3, index}, page);
  Account(status, start_ns);
  ephemeral_.erase(index);
  if (status == TMEM_STATUS_OK) {
    ephemeral_[index] = {stamp, 0};
  } else {
    ++report_.refused;
  }
}

void GoodGuest::GetEphemeral(std::uint64_t index) {
  TestPage page;
  const std::uint64_t start_ns = NowNs();
  const tmem_status status = guest_.Get({ephemeral_pool_, 3, index}, page);
  const std::uint64_t took_ns = NowNs() - start_ns;
  Account(status, start_ns);
  const auto stored = ephemeral_.find(index);
  if (status == TMEM_STATUS_OK) {
    ++report_.hits;
    {
      MutexLock lock(mutex_);
      get_ns_.push_back(took_ns);
    }
    if (stored == ephemeral_.end()) {
      ++report_.resurrected;
    } else if (page != PageFor(stored->second.stamp)) {
      ++report_.wrong_bytes;
    }
  } else if (status != TMEM_STATUS_MISS) {
    ++report_.refused;
  } else if (stored != ephemeral_.end()) {
    ++report_.evicted;
  }
  if (stored != ephemeral_.end()) ephemeral_.erase(stored);
}

void GoodGuest::PutPersistent(std::uint64_t index) {
  if (guest_.CreditsGranted() == credits_spent_) return;  // the page would go to the swap device
  ++credits_spent_;
  const std::uint64_t stamp = ++stamps_;
  const auto tag = static_cast<std::uint32_t>(random_());
  const TestPage page = PageFor(stamp);
  const std::uint64_t start_ns = NowNs();
  const tmem_status status = guest_.Put({persistent_pool_, 4, index}, page, tag);
  Account(status, start_ns);
  persistent_.erase(index);
  if (status == TMEM_STATUS_OK) {
    persistent_[index] = {stamp, tag};
  } else {
    ++report_.lost_persistent;
  }
}

void GoodGuest::GetPersistent(std::uint64_t index) {
  TestPage page;
  std::uint32_t tag = 0;
  const std::uint64_t start_ns = NowNs();
  const tmem_status status = guest_.Get({persistent_pool_, 4, index}, page, &tag);
  const std::uint64_t took_ns = NowNs() - start_ns;
  Account(status, start_ns);
  const auto stored = persistent_.find(index);
  if (stored == persistent_.end()) {
    if (status != TMEM_STATUS_MISS) ++report_.resurrected;
    return;
  }
  if (status != TMEM_STATUS_OK) {
    ++report_.lost_persistent;
    persistent_.erase(stored);
    return;
  }
  ++report_.hits;
  {
    MutexLock lock(mutex_);
    get_ns_.push_back(took_ns);
  }
  if (page != PageFor(stored->second.stamp)) ++report_.wrong_bytes;
  if (tag != stored->second.tag) ++report_.wrong_tags;
}

void GoodGuest::FlushSome(std::uint64_t pool, std::map<std::uint64_t, Stored>& model,
                          std::uint64_t index) {
  const std::uint32_t count = 1 + static_cast<std::uint32_t>(random_() % kMaxFlush);
  const std::uint64_t start_ns = NowNs();
  const std::uint64_t object = pool == ephemeral_pool_ ? 3 : 4;
  const tmem_status status = guest_.Flush({pool, object, index}, count);
  Account(status, start_ns);
  if (status != TMEM_STATUS_OK) ++report_.refused;
  model.erase(model.lower_bound(index), model.lower_bound(index + count));
}

}  // namespace tmem
