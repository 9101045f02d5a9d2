// SPDX-License-Identifier: GPL-2.0-only
// What was done to keys, when, with what result; and whether a correct store could have answered
// so.
#include "tests/store_model/history.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tmem {
namespace {

constexpr uint64_t kNever = UINT64_MAX;

std::string Describe(const Event& event) {
  static constexpr const char* kNames[] = {"put", "remove", "hit", "miss"};
  return std::string(kNames[static_cast<size_t>(event.kind)]) + " of value " +
         std::to_string(event.value) + " in [" + std::to_string(event.begin) + ", " +
         std::to_string(event.end) + "]";
}

// Of all events from one on (in the order of their beginnings): the one that ended first, and the
// one that ended first among those of any other value.
struct Earliest {
  uint64_t end = kNever;
  uint32_t value = 0;
  uint64_t end_of_other = kNever;

  void Add(uint64_t event_end, uint32_t event_value) {
    if (event_end < end) {
      if (event_value != value) end_of_other = end;
      end = event_end;
      value = event_value;
    } else if (event_value != value) {
      end_of_other = std::min(end_of_other, event_end);
    }
  }
  uint64_t EndNotCounting(uint32_t excluded) const {
    return value == excluded ? end_of_other : end;
  }
};

class Checker {
 public:
  Checker(KeyKind kind, std::vector<Event>& events) : kind_(kind), events_(events) {
    std::sort(events_.begin(), events_.end(),
              [](const Event& a, const Event& b) { return a.begin < b.begin; });
    earliest_.resize(events_.size() + 1);
    for (size_t i = events_.size(); i > 0; --i) {
      const Event& event = events_[i - 1];
      earliest_[i - 1] = earliest_[i];
      // Misses and removals are of no value; 0 stands for that, as no put has it.
      const bool has_value = event.kind == Event::Kind::kPut || event.kind == Event::Kind::kHit;
      earliest_[i - 1].Add(event.end, has_value ? event.value : 0);
      if (event.kind == Event::Kind::kPut) puts_.emplace(event.value, event);
    }
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kPut) puts_by_end_.push_back({event.end, event.begin});
      if (event.kind == Event::Kind::kRemove) removals_.push_back({event.begin, event.end});
    }
    std::sort(puts_by_end_.begin(), puts_by_end_.end());
    RunningMax(puts_by_end_);
    RunningMax(removals_);
  }

  std::optional<std::string> Check() {
    for (const Event& event : events_) {
      const char* fault = nullptr;
      if (event.kind == Event::Kind::kHit) fault = FaultOfHit(event);
      if (event.kind == Event::Kind::kMiss && kind_ == KeyKind::kPersistent) {
        fault = FaultOfMiss(event);
      }
      if (fault != nullptr) return Describe(event) + ": " + fault;
    }
    return std::nullopt;
  }

 private:
  struct At {
    uint64_t moment;
    uint64_t other;
    bool operator<(const At& that) const { return moment < that.moment; }
  };

  static void RunningMax(std::vector<At>& list) {
    for (size_t i = 1; i < list.size(); ++i) {
      list[i].other = std::max(list[i].other, list[i - 1].other);
    }
  }
  // The greatest `other` of those before a moment; 0 if there are none.
  static uint64_t MaxBefore(const std::vector<At>& list, uint64_t moment) {
    const auto end = std::lower_bound(list.begin(), list.end(), At{moment, 0});
    return end == list.begin() ? 0 : std::prev(end)->other;
  }

  const char* FaultOfHit(const Event& hit) {
    const auto put = puts_.find(hit.value);
    if (put == puts_.end()) return "this value was never put to this key";
    if (put->second.begin > hit.end) return "this value was put only afterwards";
    if (kind_ == KeyKind::kEphemeral && !taken_.insert(hit.value).second) {
      return "this value was taken out before";
    }
    const auto first_after =
        std::upper_bound(events_.begin(), events_.end(), put->second.end,
                         [](uint64_t moment, const Event& event) { return moment < event.begin; });
    const Earliest& earliest = earliest_[static_cast<size_t>(first_after - events_.begin())];
    // Persistent: other gets of the value show that it was still there.
    const uint64_t end =
        kind_ == KeyKind::kPersistent ? earliest.EndNotCounting(hit.value) : earliest.end;
    if (end < hit.begin) return "between this value's put and this get, it was seen or made gone";
    return nullptr;
  }

  const char* FaultOfMiss(const Event& miss) const {
    // The put that began last has the fewest removals that may have come after it.
    const uint64_t put_begin = MaxBefore(puts_by_end_, miss.begin);
    if (put_begin == 0) return nullptr;
    if (MaxBefore(removals_, miss.end) > put_begin) return nullptr;
    return "a page was put and nothing removed it";
  }

  const KeyKind kind_;
  std::vector<Event>& events_;
  std::vector<Earliest> earliest_;
  std::unordered_map<uint32_t, Event> puts_;
  std::unordered_set<uint32_t> taken_;
  std::vector<At> puts_by_end_;  // end, begin
  std::vector<At> removals_;     // begin, end
};

}  // namespace

std::optional<std::string> CheckKeyHistory(KeyKind kind, std::vector<Event>& events) {
  return Checker(kind, events).Check();
}

}  // namespace tmem
