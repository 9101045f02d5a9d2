// SPDX-License-Identifier: GPL-2.0-only
// Deficit round-robin.
#include "host-store/doorbell/service.h"

#include <algorithm>
#include <utility>

namespace tmem {

void Service::Add(Channel& channel, std::uint32_t weight, ChannelListener listener) {
  const std::int64_t quantum = kQuantumUnits * std::clamp(weight, 1u, kMaxWeight);
  served_.push_back({.channel = &channel,
                     .listener = std::move(listener),
                     .quantum = quantum,
                     .left = quantum,
                     .work = Channel::Work::kNone,
                     .landed = false});
}

void Service::Remove(Channel& channel) {
  std::erase_if(served_, [&](const Served& served) { return served.channel == &channel; });
  next_ = 0;
}

bool Service::HasWork() const {
  return std::any_of(served_.begin(), served_.end(),
                     [](const Served& served) { return served.channel->HasWork(); });
}

bool Service::Look() {
  bool any = false;
  for (Served& served : served_) {
    served.work = served.channel->Look();
    served.landed = store_.landed_of(served.channel->guest()) != 0;
    any |= served.work != Channel::Work::kNone || served.landed;
  }
  return any;
}

bool Service::Wants(const Served& served, Rank rank) {
  switch (rank) {
    case Rank::kUrgent: return served.work == Channel::Work::kUrgent;
    case Rank::kPlain: return served.work != Channel::Work::kNone;
    case Rank::kSettle: return served.landed;
  }
  return false;
}

Service::Served* Service::Choose() {
  for (const Rank rank : {Rank::kUrgent, Rank::kPlain, Rank::kSettle}) {
    for (std::size_t i = 0; i < served_.size(); ++i) {
      const std::size_t at = (next_ + i) % served_.size();
      if (served_[at].left <= 0 || !Wants(served_[at], rank)) continue;
      next_ = at + 1;
      return &served_[at];
    }
  }
  return nullptr;
}

void Service::BeginRound() {
  for (Served& served : served_) {
    served.left = std::min(served.left + served.quantum, served.quantum);
  }
}

Service::Step Service::Next() {
  if (!Look()) {
    BeginRound();
    return {};
  }
  Served* chosen = Choose();
  // A step may take more than a round gives, but not more than a few.
  for (; chosen == nullptr; chosen = Choose()) BeginRound();
  return Serve(*chosen);
}

Service::Step Service::Serve(Served& served) {
  Step step{.did = Did::kVisit, .channel = served.channel, .units = 0};
  if (served.work == Channel::Work::kNone) {
    step.did = Did::kSettle;
    // One page: the lanes are looked at between any two.
    step.units = store_.SettleOf(served.channel->guest(), 1) * kSettledPageUnits;
    served.channel->counters().settle_units.Add(step.units);
  } else {
    const Channel::Visited visited = served.channel->Visit();
    step.units = visited.units;
    step.waited_for = served.work == Channel::Work::kUrgent;
    if (visited.event != Channel::Event::kNone && served.listener) served.listener(visited.event);
  }
  served.left -= static_cast<std::int64_t>(std::max<WorkUnits>(step.units, 1));
  return step;
}

}  // namespace tmem
