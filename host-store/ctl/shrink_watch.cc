// SPDX-License-Identifier: GPL-2.0-only
// Reads rows of the status.
#include "host-store/ctl/shrink_watch.h"

#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

using nlohmann::json;

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string StateOf(const json& task) {
  const auto found = task.find("state");
  return found != task.end() && found->is_string() ? found->get<std::string>() : "";
}

json TaskOf(const json& guest, const char* key) {
  const auto found = guest.find(key);
  return found != guest.end() && found->is_object() ? *found : json::object();
}

}  // namespace

std::optional<ShrinkWatch::Verdict> ShrinkWatch::Look(const json& guest, std::uint64_t now_ns) {
  const bool shrink = task_ == Task::kShrink;
  const json task = TaskOf(guest, shrink ? "shrink" : "drain");
  const std::uint64_t held_bytes = Number(guest, "persistent_pages") * kPageBytes;
  const std::string state = StateOf(task);
  const std::string progress = shrink ? FormatSize(Number(task, "done_bytes")) + " of " +
                                            FormatSize(Number(task, "asked_bytes")) + " given up"
                                      : FormatSize(Number(task, "done_bytes")) + " home, " +
                                            FormatSize(held_bytes) + " still here";
  const auto connected = guest.find("connected");
  if (connected == guest.end() || *connected != true) {
    return Verdict{false, "the guest is gone"};
  }
  progress_ = progress;
  const std::uint64_t given_bytes = Number(task, "done_bytes");
  const bool moved = shrink ? given_bytes > best_bytes_ : held_bytes < best_bytes_;
  if (moved || moved_ns_ == 0) {
    best_bytes_ = shrink ? given_bytes : held_bytes;
    moved_ns_ = now_ns;
  }
  // The flushes of the last pages may still be on their way.
  const bool waiting =
      state == "asked" || state == "working" || (!shrink && state == "done" && held_bytes != 0);
  if (!waiting) return Ended(state);
  if (now_ns - moved_ns_ < patience_ns_) return std::nullopt;
  return Verdict{false, progress_ + ", and then nothing for " +
                            std::to_string(patience_ns_ / 1'000'000'000) +
                            " s: the guest does not answer, or is too slow"};
}

ShrinkWatch::Verdict ShrinkWatch::Ended(const std::string& state) const {
  if (state == "done") return {true, progress_};
  if (state == "nothing_left") return {true, progress_ + ", it has no more to give"};
  if (state == "no_memory") {
    return {false, progress_ +
                       ": the guest has no room for the rest; give it memory or swap, "
                       "and ask again"};
  }
  if (state == "unreadable") return {false, progress_ + ": the guest cannot read the rest"};
  if (state == "cancelled") return {false, progress_ + ", then it was taken back"};
  if (state == "over") return {false, progress_ + ", then the guest registered anew"};
  return {false, "tmemd says '" + state + "', which this tmemctl does not know"};
}

}  // namespace tmem
