// SPDX-License-Identifier: GPL-2.0-only
// Signals an eventfd by the completion of an asynchronous read.
#include "host-store/doorbell/eventfd_bell.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tmem {

EventfdBell::EventfdBell(int eventfd)
    : eventfd_(eventfd), empty_file_(::memfd_create("tmem-bell", MFD_CLOEXEC)) {
  if (::syscall(SYS_io_setup, 1, &context_) != 0) context_ = 0;
}

EventfdBell::~EventfdBell() {
  if (context_ != 0) (void)::syscall(SYS_io_destroy, context_);
}

void EventfdBell::Ring() {
  if (eventfd_ == kNoEventfd) return;
  if (context_ == 0) {
    (void)::eventfd_write(eventfd_, 1);
    return;
  }
  iocb read{};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<__u32>(empty_file_.get());
  read.aio_flags = IOCB_FLAG_RESFD;
  read.aio_resfd = static_cast<__u32>(eventfd_);
  iocb* reads[] = {&read};
  // A read at the end of a memory file completes, and rings, before io_submit returns.
  (void)::syscall(SYS_io_submit, context_, 1, reads);
  io_event done{};
  timespec no_time{};
  (void)::syscall(SYS_io_getevents, context_, 0, 1, &done, &no_time);
}

}  // namespace tmem
