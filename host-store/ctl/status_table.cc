// SPDX-License-Identifier: GPL-2.0-only
// Lays out the status in columns.
#include "host-store/ctl/status_table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

std::uint64_t Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "-";
  const auto text = found->get<std::string>();
  return text.empty() ? "-" : text;
}

std::string Count(std::uint64_t count) {
  return std::to_string(count);
}

std::string Size(const json& object, const char* key) {
  return FormatSize(Number(object, key));
}

// First column to the left, numbers to the right.
std::string Layout(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      text += i == 0 ? row[i] + pad : "  " + pad + row[i];
    }
    text += '\n';
  }
  return text;
}

// What guests and daemon have of it together.
std::string BudgetLine(const json& status) {
  if (!status.contains("budget")) return "";
  const json budget = status.value("budget", json::object());
  const std::uint64_t guests_bytes = Number(budget, "guests_bytes");
  return "budget   " + FormatSize(guests_bytes + Number(status, "used_bytes")) + " of " +
         Size(budget, "budget_bytes") + ": " + FormatSize(guests_bytes) + " guests, " +
         Size(budget, "reserve_bytes") + " kept free; over it " +
         Count(Number(budget, "times_over")) + " times, at most by " +
         Size(budget, "worst_over_bytes") + "; host short of memory " +
         Count(Number(budget, "times_pressed")) + " times\n";
}

std::string PoolLines(const json& status) {
  const json pool = status.value("pool", json::object());
  const std::uint64_t pages = Number(pool, "pages");
  std::string text = "memory   " + Size(status, "used_bytes") + " of " +
                     Size(status, "limit_bytes") + " used: " + Size(status, "slab_bytes") +
                     " pages, " + Size(status, "landing_bytes") + " landing, " +
                     Size(status, "metadata_bytes") + " index, " + Size(status, "reserved_bytes") +
                     " windows, " + Size(status, "overhead_bytes") + " daemon\n";
  const std::uint64_t module_bytes = Number(status, "pool_limit_bytes");
  if (module_bytes != 0) text += "module   allows " + FormatSize(module_bytes) + "\n";
  text += BudgetLine(status);
  text += "swap     " + Size(status, "pool_min_bytes") + " kept for swapped-out pages\n";
  text += "pages    " + Count(pages) + " (" + FormatSize(pages * 4096) +
          " of guest memory): " + Count(Number(pool, "same_filled")) + " same-filled, " +
          Count(Number(pool, "duplicates")) + " duplicates, " + Count(Number(pool, "compressed")) +
          " compressed, " + Count(Number(pool, "raw")) + " raw\n";
  return text;
}

// Over which doorbell, or that it is not.
std::string Connected(const json& guest) {
  if (guest.value("leaving", false)) return "leaving";
  if (!guest.value("connected", false)) return "no";
  const std::string doorbell = Text(guest, "doorbell");
  return doorbell == "-" ? "yes" : doorbell;
}

// What was asked of guests and how far they are; nothing of those that were asked nothing.
std::string AskedLines(const json& status) {
  std::string text;
  for (const json& guest : status.value("guests", json::array())) {
    const json shrink = guest.contains("shrink") ? guest["shrink"] : json();
    const json drain = guest.contains("drain") ? guest["drain"] : json();
    if (shrink.is_object() && Text(shrink, "state") != "none" && Text(shrink, "state") != "-") {
      text += Text(guest, "name") + ": shrink " + Text(shrink, "state") + ", " +
              Size(shrink, "done_bytes") + " of " + Size(shrink, "asked_bytes") + " given up, " +
              Size(shrink, "left_bytes") + " still asked for\n";
    }
    if (drain.is_object() && Text(drain, "state") != "none" && Text(drain, "state") != "-") {
      const auto on = drain.find("on");
      text += Text(guest, "name") + ": drain " + Text(drain, "state") + ", " +
              Size(drain, "done_bytes") + " home, " +
              FormatSize(Number(guest, "persistent_pages") * 4096) + " still here, " +
              (on != drain.end() && *on == true ? "puts no more" : "may put again") + "\n";
    }
  }
  return text.empty() ? text : "\n" + text;
}

// Who the guests are that came by rule, and how many were refused.
std::string HypercallLines(const json& status) {
  if (!status.contains("hypercall")) return "";
  const json hypercall = status.value("hypercall", json::object());
  std::string text = "\nhypercall doorbell: " + Text(hypercall, "state") + ", " +
                     Count(Number(status, "refused_guests")) + " guests refused\n";
  std::vector<Row> rows = {{"guest", "uid", "process", "label", "cgroup"}};
  for (const json& guest : status.value("guests", json::array())) {
    if (Text(guest, "doorbell") != "hypercall") continue;
    rows.push_back({Text(guest, "name"), Count(Number(guest, "uid")), Count(Number(guest, "pid")),
                    Text(guest, "label"), Text(guest, "cgroup")});
  }
  return rows.size() == 1 ? text : text + Layout(rows);
}

}  // namespace

std::string StatusTable(const json& status) {
  std::vector<Row> rows = {{"guest", "domain", "connected", "ephemeral", "persistent", "credits",
                            "puts", "hits", "misses", "evicted", "rings", "cpu ms"}};
  const bool has_budget = status.contains("budget");
  if (has_budget) rows[0].insert(rows[0].end(), {"resident", "seen by"});
  for (const json& guest : status.value("guests", json::array())) {
    const json counters = guest.value("counters", json::object());
    rows.push_back(
        {Text(guest, "name"), Text(guest, "domain"), Connected(guest),
         FormatSize(Number(guest, "ephemeral_pages") * 4096),
         FormatSize(Number(guest, "persistent_pages") * 4096), Count(Number(guest, "credits")),
         Count(Number(counters, "puts_ok")), Count(Number(counters, "gets_hit")),
         Count(Number(counters, "gets_miss")), Count(Number(counters, "pages_evicted")),
         Count(Number(counters, "rings_received")), Count(Number(counters, "cpu_ns") / 1'000'000)});
    if (!has_budget) continue;
    rows.back().insert(rows.back().end(),
                       {Size(guest, "resident_bytes"), Text(guest, "resident_from")});
  }
  return PoolLines(status) + "\n" + Layout(rows) + AskedLines(status) + HypercallLines(status);
}

}  // namespace tmem
