// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/ivshmem_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/doorbell/window_memory.h"

namespace tmem {
namespace {

// A server in a thread of its own; counts what it is told.
class IvshmemServerTest : public testing::Test {
 protected:
  IvshmemServerTest()
      : path_(directory_.path() + "/guest.sock"),
        memory_(WindowMemory::CreateShared(1u << 20).value()),
        kick_(::eventfd(0, EFD_NONBLOCK)),
        notify_(::eventfd(0, EFD_NONBLOCK)),
        loop_(EventLoop::Create().value()) {
    IvshmemHandlers handlers;
    handlers.on_connect = [this](const PeerCredentials& peer) -> Result<IvshmemHandover> {
      EXPECT_EQ(peer.pid, ::getpid());
      EXPECT_EQ(peer.uid, ::getuid());
      if (refuse_) return Error{ErrorCode::kExhausted, "no room"};
      ++connects_;
      return IvshmemHandover{memory_.fd(), kick_.get(), notify_.get()};
    };
    handlers.on_disconnect = [this](const std::string&) { ++disconnects_; };
    handlers.on_refused = [this](const std::string&) { ++refusals_; };
    server_ = IvshmemServer::Create(*loop_, path_, std::move(handlers)).value();
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~IvshmemServerTest() override {
    loop_->Stop();
    thread_.join();
  }

  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 60'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  TestDirectory directory_;
  std::string path_;
  WindowMemory memory_;
  UniqueFd kick_;
  UniqueFd notify_;
  std::unique_ptr<EventLoop> loop_;
  std::atomic<bool> refuse_{false};
  std::atomic<int> connects_{0};
  std::atomic<int> disconnects_{0};
  std::atomic<int> refusals_{0};
  std::unique_ptr<IvshmemServer> server_;
  std::thread thread_;
};

TEST_F(IvshmemServerTest, HandsOverWindowAndDoorbells) {
  const auto client = TestIvshmemClient::Connect(path_).value();
  EXPECT_EQ(client.window_bytes(), 1u << 20);
  client.window()[5] = std::byte{77};
  EXPECT_EQ(memory_.data()[5], std::byte{77});
  client.Kick();
  eventfd_t rung = 0;
  EXPECT_EQ(::eventfd_read(kick_.get(), &rung), 0);
  EXPECT_EQ(rung, 1u);
  (void)::eventfd_write(notify_.get(), 1);
  EXPECT_EQ(::eventfd_read(client.notify_fd(), &rung), 0);
}

TEST_F(IvshmemServerTest, TheWindowCannotBeShrunkUnderTheHost) {
  const auto client = TestIvshmemClient::Connect(path_).value();
  EXPECT_NE(::ftruncate(client.memory_fd(), 4096), 0);
  EXPECT_NE(::ftruncate(client.memory_fd(), 2 << 20), 0);
  EXPECT_NE(::fcntl(client.memory_fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(IvshmemServerTest, ASecondClientIsRefusedAndTheFirstGoesOn) {
  auto first = TestIvshmemClient::Connect(path_).value();
  EXPECT_FALSE(TestIvshmemClient::Connect(path_).ok());
  EXPECT_TRUE(Eventually([&] { return refusals_ == 1; }));
  EXPECT_EQ(disconnects_, 0);
  first.Disconnect();
  EXPECT_TRUE(Eventually([&] { return disconnects_ == 1; }));
  EXPECT_TRUE(TestIvshmemClient::Connect(path_).ok());
  EXPECT_EQ(connects_, 2);
}

TEST_F(IvshmemServerTest, AClientThatSendsAnythingIsDisconnected) {
  const auto client = TestIvshmemClient::Connect(path_).value();
  const char junk[] = "GET / HTTP/1.1";
  ASSERT_GT(::send(client.socket(), junk, sizeof junk, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(Eventually([&] { return disconnects_ == 1; }));
}

TEST_F(IvshmemServerTest, HalfClosedAndSilentClientsBlockNobody) {
  {
    const auto half = TestIvshmemClient::Connect(path_).value();
    ASSERT_EQ(::shutdown(half.socket(), SHUT_WR), 0);
    EXPECT_TRUE(Eventually([&] { return disconnects_ == 1; }));
  }
  // Connects and reads nothing at all.
  const auto silent = ConnectUnix(path_).value();
  EXPECT_TRUE(Eventually([&] { return connects_ == 2; }));
  EXPECT_FALSE(TestIvshmemClient::Connect(path_).ok());  // and the loop still answers
}

TEST_F(IvshmemServerTest, ConnectStormsLeaveNothingBehind) {
  for (int i = 0; i < 300; ++i) (void)ConnectUnix(path_);
  EXPECT_TRUE(Eventually([&] { return disconnects_ == connects_ && connects_ > 0; }));
  EXPECT_TRUE(Eventually([&] { return TestIvshmemClient::Connect(path_).ok(); }));
}

TEST_F(IvshmemServerTest, WithoutRoomTheClientIsSentAway) {
  refuse_ = true;
  EXPECT_FALSE(TestIvshmemClient::Connect(path_).ok());
  EXPECT_TRUE(Eventually([&] { return refusals_ == 1; }));
  EXPECT_EQ(disconnects_, 0);
  refuse_ = false;
  EXPECT_TRUE(TestIvshmemClient::Connect(path_).ok());
}

// ---- the socket file --------------------------------------------------------------------------

TEST(UnixListener, ReplacesAStaleSocketButNoServedOneAndNoFile) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/a.sock";
  {
    // Left behind by a process that was killed: bound, closed, not unlinked.
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  {
    const auto listener = UnixListener::Create(path, 0600);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    const auto second = UnixListener::Create(path, 0600);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "precious";
  const auto on_file = UnixListener::Create(path, 0600);
  ASSERT_FALSE(on_file.ok());
  EXPECT_THAT(on_file.error().message, testing::HasSubstr("not a socket"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(UnixListener, RefusesPathsTheKernelWouldCut) {
  const auto listener = UnixListener::Create("/tmp/" + std::string(200, 'x'), 0600);
  ASSERT_FALSE(listener.ok());
  EXPECT_THAT(listener.error().message, testing::HasSubstr("shorter"));
}

}  // namespace
}  // namespace tmem
