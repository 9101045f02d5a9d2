// SPDX-License-Identifier: GPL-2.0-only
// What a worker does, one bounded step after the other, and whose turn it is.
#ifndef HOST_STORE_DOORBELL_SERVICE_H_
#define HOST_STORE_DOORBELL_SERVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "host-store/store/store.h"
#include "host-store/window/channel.h"
#include "host-store/window/work_units.h"

namespace tmem {

// Told in the worker's thread, between visits; must not block.
using ChannelListener = std::function<void(Channel::Event)>;

// Deficit round-robin over guests, in units of work (work_units.h).
//
// 1. A round gives each guest kQuantumUnits times its weight. A step is paid by the guest for whom
// it
//    is done: visits of its channel, compression of its pages. Who has spent its part waits for the
//    next round, which begins when all who have work have spent theirs. What a step took beyond its
//    part is taken off the next one; what a guest did not use does not add up.
// 2. In a round what guests wait for comes first, then what they only handed over, then
// compression;
//    within each of these, guests take turns.
// 3. A step is at most kMaxStepUnits long, so a get of a guest with units left waits for one step
// in
//    progress and one of each other guest that has urgent work too.
//
// Thread rule: one thread at a time. Cost of a step: a look at each channel's lanes.
class Service {
 public:
  // 100 us: a few steps of work, and short against the milliseconds that a guest is used to wait
  // for a disk.
  static constexpr std::int64_t kQuantumUnits = 1000;
  static constexpr WorkUnits kMaxStepUnits = Channel::kMaxVisitUnits;
  static constexpr std::uint32_t kMaxWeight = 100;

  explicit Service(Store& store) : store_(store) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void Add(Channel& channel, std::uint32_t weight, ChannelListener listener);
  void Remove(Channel& channel);

  enum class Did : std::uint8_t { kNothing, kVisit, kSettle };
  struct Step {
    Did did = Did::kNothing;
    Channel* channel = nullptr;
    WorkUnits units = 0;
    bool waited_for = false;  // by the guest
  };
  Step Next();

  // Whether Next would find something in a lane.
  bool HasWork() const;

  template <typename Function>
  void ForEach(Function function) const {
    for (const Served& served : served_) function(*served.channel);
  }

 private:
  struct Served {
    Channel* channel;
    ChannelListener listener;
    std::int64_t quantum;
    std::int64_t left;
    Channel::Work work;  // as last looked at
    bool landed;
  };
  enum class Rank : std::uint8_t { kUrgent, kPlain, kSettle };

  static bool Wants(const Served& served, Rank rank);
  Served* Choose();
  bool Look();
  void BeginRound();
  Step Serve(Served& served);

  Store& store_;
  std::vector<Served> served_;
  std::size_t next_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_SERVICE_H_
