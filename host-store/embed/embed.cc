// SPDX-License-Identifier: GPL-2.0-only
// The C face of the in-process doorbell: checks arguments, turns errors into numbers and text.
#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "host-store/base/clock.h"
#include "host-store/base/mutex.h"
#include "host-store/doorbell/in_process.h"
#include "host-store/embed/tmem_embed.h"

using tmem::ErrorCode;
using tmem::InProcessGuest;
using tmem::InProcessHost;
using tmem::MutexLock;
using tmem::Result;

// NOLINTBEGIN(readability-identifier-naming): the header's names
struct tmem_store {
  tmem::SteadyClock clock;
  std::unique_ptr<InProcessHost> host;
  // The doorbell adds and removes guests from one thread at a time.
  tmem::Mutex lifecycle;
  std::uint32_t guests TMEM_GUARDED_BY(lifecycle) = 0;
};

struct tmem_guest {
  tmem_store& store;
  std::unique_ptr<InProcessGuest> channel;
};
// NOLINTEND(readability-identifier-naming)

namespace {

// Bounds of what a VMM may ask for; more of either is a mistake.
constexpr std::uint32_t kMaxThreads = 64;
constexpr std::uint32_t kDefaultMaxGuests = 64;
constexpr std::size_t kMaxNameBytes = 255;
// As good as for ever, and no sum with a clock overflows.
constexpr std::uint64_t kMaxTimeoutNs = std::uint64_t{1} << 60;

thread_local std::string last_details;

tmem_error Fail(tmem_error error, std::string details) {
  last_details = std::move(details);
  return error;
}

tmem_error Invalid(std::string details) {
  return Fail(TMEM_ERROR_INVALID, std::move(details));
}

tmem_error Fail(tmem::Error error) {
  tmem_error number = TMEM_ERROR_SYSTEM;
  if (error.code == ErrorCode::kInvalidArgument) number = TMEM_ERROR_INVALID;
  if (error.code == ErrorCode::kAlreadyExists) number = TMEM_ERROR_EXISTS;
  if (error.code == ErrorCode::kExhausted) number = TMEM_ERROR_FULL;
  return Fail(number, std::move(error.message));
}

// No exception may pass into C; only these allocate much.
template <typename Function>
tmem_error WithoutExceptions(Function&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    return Fail(TMEM_ERROR_SYSTEM, error.what());
  }
}

bool IsName(const char* name) {
  return name != nullptr && *name != '\0' && ::strnlen(name, kMaxNameBytes + 1) <= kMaxNameBytes;
}

// The window that `options` gives or asks for.
Result<tmem::WindowMemory> Window(const tmem_guest_options& options, std::uint64_t bytes) {
  if (options.window == nullptr) return tmem::WindowMemory::CreatePrivate(bytes);
  if (reinterpret_cast<std::uintptr_t>(options.window) % TMEM_PAGE_BYTES != 0) {
    return tmem::Error{ErrorCode::kInvalidArgument, "a window begins on a page"};
  }
  return tmem::WindowMemory::Borrow(static_cast<std::byte*>(options.window), bytes);
}

tmem_error CreateStore(const tmem_store_options& options, tmem_store*& out) {
  tmem::InProcessOptions in_process{};
  in_process.store.limit_bytes = options.limit_bytes;
  in_process.store.pool_min_bytes = options.pool_min_bytes;
  in_process.store.max_guests = options.max_guests != 0 ? options.max_guests : kDefaultMaxGuests;
  in_process.workers = options.threads;
  auto& seed = in_process.store.seed;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed)
    return Fail(tmem::SystemError("getrandom"));
  auto store = std::make_unique<tmem_store>();
  auto host = InProcessHost::Create(in_process, store->clock);
  if (!host) return Fail(std::move(host).error());
  store->host = std::move(*host);
  out = store.release();
  return TMEM_ERROR_NONE;
}

tmem_error AddGuest(tmem_store& store, const tmem_guest_options& options, tmem_guest*& out) {
  const bool default_size = options.window == nullptr && options.window_bytes == 0;
  const std::uint64_t bytes = default_size ? TMEM_EMBED_WINDOW_BYTES : options.window_bytes;
  const auto layout = tmem::WindowOptionsFor(bytes);
  if (!layout) return Fail(layout.error());
  auto window = Window(options, bytes);
  if (!window) return Fail(std::move(window).error());
  std::function<void()> notify;
  if (options.notify != nullptr) {
    notify = [call = options.notify, context = options.context] { call(context); };
  }
  const tmem::GuestOptions guest_options{
      .name = options.name,
      .domain = options.domain != nullptr ? options.domain : "",
      .weight = options.weight != 0 ? options.weight : 1,
  };
  MutexLock lock(store.lifecycle);
  auto channel = store.host->Adopt(guest_options, std::move(*window), *layout, std::move(notify));
  if (!channel) return Fail(std::move(channel).error());
  out = new tmem_guest{store, std::move(*channel)};
  ++store.guests;
  return TMEM_ERROR_NONE;
}

}  // namespace

// ---- errors -----------------------------------------------------------------------------------

const char* tmem_error_name(tmem_error error) {
  switch (error) {
    case TMEM_ERROR_NONE: return "no error";
    case TMEM_ERROR_INVALID: return "invalid argument";
    case TMEM_ERROR_EXISTS: return "already exists";
    case TMEM_ERROR_FULL: return "does not fit";
    case TMEM_ERROR_IN_USE: return "in use";
    case TMEM_ERROR_NOT_DONE: return "not done";
    case TMEM_ERROR_SYSTEM: return "refused by the system";
  }
  return "unknown error";
}

const char* tmem_error_details() {
  return last_details.c_str();
}

// ---- store ------------------------------------------------------------------------------------

tmem_error tmem_store_create(const tmem_store_options* options, tmem_store** store) {
  if (options == nullptr || store == nullptr) return Invalid("options and store may not be NULL");
  *store = nullptr;
  if (options->version != TMEM_EMBED_VERSION) {
    return Invalid("version " + std::to_string(options->version) + ": this library has version " +
                   std::to_string(TMEM_EMBED_VERSION));
  }
  if (options->zero != 0) return Invalid("a field that must be 0 is not");
  if (options->threads > kMaxThreads) return Invalid("at most 64 threads");
  return WithoutExceptions([&] { return CreateStore(*options, *store); });
}

tmem_error tmem_store_destroy(tmem_store* store) {
  if (store == nullptr) return Invalid("store may not be NULL");
  {
    MutexLock lock(store->lifecycle);
    if (store->guests != 0) {
      return Fail(TMEM_ERROR_IN_USE,
                  std::to_string(store->guests) + " guests are left: remove them first");
    }
  }
  delete store;
  return TMEM_ERROR_NONE;
}

tmem_error tmem_store_read_status(const tmem_store* store, tmem_store_status* status) {
  if (store == nullptr || status == nullptr) return Invalid("store and status may not be NULL");
  return WithoutExceptions([&] {
    const tmem::StoreStatus now = store->host->store().Status();
    *status = {.limit_bytes = now.limit_bytes,
               .used_bytes = now.used_bytes,
               .pages = now.pages,
               .saved_by_dedup_bytes = now.saved_by_dedup_bytes};
    return TMEM_ERROR_NONE;
  });
}

// ---- guests -----------------------------------------------------------------------------------

tmem_error tmem_guest_add(tmem_store* store, const tmem_guest_options* options,
                          tmem_guest** guest) {
  if (store == nullptr || options == nullptr || guest == nullptr) {
    return Invalid("store, options and guest may not be NULL");
  }
  *guest = nullptr;
  if (!IsName(options->name)) return Invalid("a name has 1 to 255 bytes");
  if (options->domain != nullptr && !IsName(options->domain)) {
    return Invalid("a domain has 1 to 255 bytes; NULL: one of its own");
  }
  if (options->zero != 0) return Invalid("a field that must be 0 is not");
  return WithoutExceptions([&] { return AddGuest(*store, *options, *guest); });
}

tmem_error tmem_guest_remove(tmem_guest* guest) {
  if (guest == nullptr) return Invalid("guest may not be NULL");
  tmem_store& store = guest->store;
  MutexLock lock(store.lifecycle);
  delete guest;
  --store.guests;
  return TMEM_ERROR_NONE;
}

void* tmem_guest_window(const tmem_guest* guest) {
  return guest != nullptr ? guest->channel->window().data() : nullptr;
}

tmem_error tmem_guest_kick(tmem_guest* guest) {
  if (guest == nullptr) return Invalid("guest may not be NULL");
  guest->channel->Kick();
  return TMEM_ERROR_NONE;
}

tmem_error tmem_guest_call(tmem_guest* guest, uint64_t lanes, uint64_t timeout_ns) {
  if (guest == nullptr) return Invalid("guest may not be NULL");
  if (lanes >> guest->channel->lane_count() != 0) {
    return Invalid("the window has only " + std::to_string(guest->channel->lane_count()) +
                   " lanes");
  }
  return WithoutExceptions([&] {
    if (guest->channel->Call(lanes, std::min(timeout_ns, kMaxTimeoutNs))) return TMEM_ERROR_NONE;
    return Fail(TMEM_ERROR_NOT_DONE, "the time is over, or the channel was reset");
  });
}

tmem_error tmem_guest_read_status(const tmem_guest* guest, tmem_guest_status* status) {
  if (guest == nullptr || status == nullptr) return Invalid("guest and status may not be NULL");
  return WithoutExceptions([&] {
    const InProcessGuest& channel = *guest->channel;
    const tmem::GuestStatus now = guest->store.host->store().StatusOf(channel.id());
    *status = {.ephemeral_pages = now.ephemeral_pages,
               .persistent_pages = now.persistent_pages,
               .stored_bytes = now.stored_bytes,
               .puts = now.puts_ok,
               .hits = now.gets_hit,
               .misses = now.gets_miss,
               .evicted = now.pages_evicted,
               .resets = channel.counters().resets.value()};
    return TMEM_ERROR_NONE;
  });
}
