// SPDX-License-Identifier: GPL-2.0-only
// Follows a guest that was asked for its page cache or to take its pages home.
#ifndef HOST_STORE_CTL_SHRINK_WATCH_H_
#define HOST_STORE_CTL_SHRINK_WATCH_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tmem {

// Judges looks at the guest's row of the status, one after the other. Thread rule: one thread.
class ShrinkWatch {
 public:
  enum class Task : std::uint8_t { kShrink, kDrain };
  struct Verdict {
    bool done;         // what was asked is done, or all that the guest can do of it
    std::string text;  // for the operator
  };

  // Gives up when nothing has moved for `patience_ns`: a drain moves when the pool holds less of
  // the guest's than ever, not when the guest says so.
  ShrinkWatch(Task task, std::uint64_t patience_ns) : task_(task), patience_ns_(patience_ns) {}

  // Nothing while the guest is at it.
  std::optional<Verdict> Look(const nlohmann::json& guest, std::uint64_t now_ns);
  // How far it is, as of the last look.
  const std::string& progress() const { return progress_; }

 private:
  Verdict Ended(const std::string& state) const;

  const Task task_;
  const std::uint64_t patience_ns_;
  std::string progress_;
  std::uint64_t moved_ns_ = 0;
  std::uint64_t best_bytes_ = 0;  // given up, or still here
};

}  // namespace tmem

#endif  // HOST_STORE_CTL_SHRINK_WATCH_H_
