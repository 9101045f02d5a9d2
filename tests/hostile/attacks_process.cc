// SPDX-License-Identifier: GPL-2.0-only
// What a VMM process that was taken over may do to its sockets and its file descriptors.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "host-store/doorbell/unix_socket.h"
#include "host-store/window/shared_memory_access.h"
#include "tests/hostile/attacks.h"

namespace tmem {
namespace {

// Random bytes, with or without a handful of fds that nobody asked for.
void SendJunk(Attacker& attacker, int socket) {
  std::array<char, 512> bytes;
  for (char& byte : bytes) byte = static_cast<char>(attacker.Random());
  iovec data{bytes.data(), 1 + attacker.Below(bytes.size())};
  constexpr int kFds = 16;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (attacker.OneIn(2)) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(kFds * sizeof(int));
    std::array<int, kFds> fds;
    fds.fill(STDERR_FILENO);
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof fds);
  }
  (void)::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The guest's own socket, from its own connection: the daemon must end that, and only that.
void JunkOnSocket(Attacker& attacker) {
  while (!attacker.Over()) {
    if (!attacker.EnsureConnected()) return;
    SendJunk(attacker, attacker.client().socket());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    attacker.Disconnect();
  }
}

void ConnectStorm(Attacker& attacker) {
  while (!attacker.Over()) {
    attacker.Disconnect();
    if (!attacker.EnsureConnected()) return;
    if (attacker.OneIn(2)) (void)attacker.EnsureRegistered();
  }
}

// Connections beside the one there is, by the dozen, none of which ever reads.
void SecondClients(Attacker& attacker) {
  while (!attacker.Over()) {
    std::array<UniqueFd, 12> sockets;
    for (UniqueFd& socket : sockets) {
      Result<UniqueFd> connected = ConnectUnix(attacker.socket_path());
      if (connected.ok()) socket = std::move(*connected);
      if (socket.valid() && attacker.OneIn(2)) SendJunk(attacker, socket.get());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(attacker.Below(3)));
  }
}

// Takes the one place and reads nothing of the greeting.
void NeverReads(Attacker& attacker) {
  while (!attacker.Over()) {
    attacker.Disconnect();
    const Result<UniqueFd> socket = ConnectUnix(attacker.socket_path());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (socket.ok() && attacker.OneIn(2)) SendJunk(attacker, socket->get());
  }
}

// Only the daemon's user may open it; a VMM that runs as that user may.
void JunkOnControlSocket(Attacker& attacker) {
  while (!attacker.Over()) {
    std::array<UniqueFd, 12> sockets;
    for (UniqueFd& socket : sockets) {
      Result<UniqueFd> connected = ConnectUnix(attacker.run_dir() + "/control.sock");
      if (!connected.ok()) continue;
      socket = std::move(*connected);
      if (attacker.OneIn(2)) {
        SendJunk(attacker, socket.get());
      } else {
        (void)::send(socket.get(), "status\n", 7, MSG_NOSIGNAL | MSG_DONTWAIT);  // never read
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(attacker.Below(3)));
  }
}

// Everything that a shared open file allows: full counters, no O_NONBLOCK, a lock, a stolen read.
void Eventfds(Attacker& attacker) {
  const int notify = attacker.client().notify_fd();
  (void)::fcntl(notify, F_SETFL, O_NONBLOCK);
  (void)::eventfd_write(notify, 0xfffffffffffffffeull - 1000);
  (void)::fcntl(notify, F_SETFL, 0);
  while (!attacker.Over()) {
    attacker.RequestRegistration(TMEM_FEATURE_EPHEMERAL);
    attacker.ForgetRegistration();
    if (!attacker.EnsureRegistered()) break;
    StoreRelaxed(attacker.view().lane(0).head().guest_waits, tmem_u32{1});
    for (int i = 0; i < 64; ++i) attacker.Post(0, tmem_desc{});
    attacker.Publish(0);
    (void)attacker.Drain(0);
  }
  (void)::fcntl(notify, F_SETFL, O_NONBLOCK);
  eventfd_t ignored = 0;
  (void)::eventfd_read(notify, &ignored);
}

// The window's file: sealed against a change of size, but holes may be punched and locks taken.
void WindowFile(Attacker& attacker) {
  const int fd = attacker.client().memory_fd();
  const auto bytes = static_cast<off_t>(attacker.client().window_bytes());
  (void)::flock(fd, LOCK_EX | LOCK_NB);
  while (!attacker.Over()) {
    (void)::ftruncate(fd, attacker.OneIn(2) ? 0 : bytes * 4);
    (void)::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE);
    const auto first = static_cast<off_t>(attacker.Random() % static_cast<std::uint64_t>(bytes));
    (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first & ~off_t{4095},
                      static_cast<off_t>(attacker.Below(64) + 1) * 4096);
    (void)::pwrite(fd, "x", 1, bytes + first);
    for (std::uint32_t lane = 0; lane < attacker.view().lane_count(); ++lane) {
      attacker.Post(lane, tmem_desc{});
    }
    attacker.PublishAll();
  }
  attacker.ForgetRegistration();
}

constexpr Attack kAttacks[] = {
    {"junk_on_socket", JunkOnSocket},
    {"connect_storm", ConnectStorm},
    {"second_clients", SecondClients},
    {"never_reads", NeverReads},
    {"junk_on_control_socket", JunkOnControlSocket},
    {"eventfds", Eventfds},
    {"window_file", WindowFile},
};

}  // namespace

std::span<const Attack> ProcessAttacks() {
  return kAttacks;
}

}  // namespace tmem
