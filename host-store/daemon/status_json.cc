// SPDX-License-Identifier: GPL-2.0-only
// Turns figures into JSON.
#include "host-store/daemon/status_json.h"

#include <string>

#include "host-store/window/wire_names.h"

namespace tmem {
namespace {

using nlohmann::json;

// {"put": {"ok": 3}, ...}, only what happened.
json OperationsJson(const ChannelCounters& counters) {
  json operations = json::object();
  for (std::size_t op = 0; op < kOpNames.size(); ++op) {
    for (std::size_t status = 0; status < kStatusNames.size(); ++status) {
      const std::uint64_t count = counters.operations[op][status].value();
      if (count == 0) continue;
      operations[std::string(kOpNames[op].name)][std::string(kStatusNames[status].name)] = count;
    }
  }
  return operations;
}

}  // namespace

json StoreStatusJson(const StoreStatus& status) {
  json pool = {
      {"limit_bytes", status.limit_bytes},
      {"used_bytes", status.used_bytes},
      {"pages", status.pages},
      {"same_filled", status.same_filled},
      {"duplicates", status.duplicates},
      {"compressed", status.compressed},
      {"raw", status.raw},
      {"landed", status.landed},
      {"slab_bytes", status.slab_bytes},
      {"metadata_bytes", status.metadata_bytes},
      {"saved_by_dedup_bytes", status.saved_by_dedup_bytes},
  };
  return {
      {"limit_bytes", status.limit_bytes},
      {"pool_min_bytes", status.pool_min_bytes},
      {"used_bytes", status.used_bytes},
      {"slab_bytes", status.slab_bytes},
      {"landing_bytes", status.landing_bytes},
      {"metadata_bytes", status.metadata_bytes},
      {"reserved_bytes", status.reserved_bytes},
      {"overhead_bytes", status.overhead_bytes},
      {"pages", status.pages},
      {"epoch", status.epoch},
      {"pool", std::move(pool)},
  };
}

json GuestStatusJson(const GuestStatus& status, const ChannelCounters& counters) {
  json of_guest = {
      {"puts_ok", status.puts_ok},
      {"puts_no_space", status.puts_no_space},
      {"puts_no_credit", status.puts_no_credit},
      {"puts_frozen", status.puts_frozen},
      {"puts_codec", status.puts_codec},
      {"puts_bad_pool", status.puts_bad_pool},
      {"gets_hit", status.gets_hit},
      {"gets_miss", status.gets_miss},
      {"gets_corrupt", status.gets_corrupt},
      {"gets_bad_pool", status.gets_bad_pool},
      {"flushes", status.flushes},
      {"pages_flushed", status.pages_flushed},
      {"pages_evicted", status.pages_evicted},
      {"pages_replaced", status.pages_replaced},
      {"registrations", counters.registrations.value()},
      {"registrations_refused", counters.registrations_refused.value()},
      {"resets", counters.resets.value()},
      {"rings_received", counters.rings_received.value()},
      {"notifications_sent", counters.notifications_sent.value()},
      {"visits", counters.visits.value()},
      {"work_units", counters.work_units.value()},
      {"settle_units", counters.settle_units.value()},
      {"cpu_ns", counters.cpu_ns.value()},
      {"settle_cpu_ns", counters.settle_cpu_ns.value()},
      {"poll_cpu_ns", counters.poll_cpu_ns.value()},
      {"report_cpu_ns", counters.report_cpu_ns.value()},
      {"reported_bytes", counters.reported_bytes.value()},
      {"operations", OperationsJson(counters)},
  };
  return {
      {"persistent_pages", status.persistent_pages},
      {"ephemeral_pages", status.ephemeral_pages},
      {"stored_bytes", status.stored_bytes},
      {"credits", status.credits},
      {"counters", std::move(of_guest)},
  };
}

json ShrinkStatusJson(const ShrinkRequests::Status& status) {
  const auto bytes = [](std::uint64_t pages) {
    return pages > UINT64_MAX / TMEM_PAGE_BYTES ? UINT64_MAX : pages * TMEM_PAGE_BYTES;
  };
  return {
      {"shrink",
       {{"taken", status.taken},
        {"state", NameOf(status.shrink.phase)},
        {"asked_bytes", bytes(status.shrink.asked_pages)},
        {"done_bytes", bytes(status.shrink.done_pages)},
        {"left_bytes", bytes(status.left_pages)}}},
      {"drain",
       {{"on", status.draining},
        {"state", NameOf(status.drain.phase)},
        {"done_bytes", bytes(status.drain.done_pages)}}},
  };
}

json DisconnectedGuestJson(const json& last, const GuestStatus& now) {
  return {
      {"persistent_pages", now.persistent_pages},
      {"ephemeral_pages", now.ephemeral_pages},
      {"stored_bytes", now.stored_bytes},
      {"credits", now.credits},
      {"counters", last.is_object() ? last.at("counters") : json::object()},
  };
}

}  // namespace tmem
