// SPDX-License-Identifier: GPL-2.0-only
// Where samples of pages come from: files that Debian installs, and memory of live processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compress/page.h"
#include "host-store/base/result.h"

namespace tmem {

// Takes a page; false when it wants no more.
using PageSink = std::function<bool(PageView)>;

// Regular files below the directories, in an order that the seed gives; symbolic links are not
// followed, and what cannot be read is left out.
std::vector<std::string> FilesBelow(const std::vector<std::string>& directories, uint64_t seed);

// Text, one file after the other, unpacked where it is a .gz; pages with a zero byte are no text
// and left out. Errors: gzip cannot be run.
Result<void> ReadTextFiles(const std::vector<std::string>& files, const PageSink& sink);

// Whole pages of the ELF files among them, each from its first byte, as the page cache has them.
void ReadElfFiles(const std::vector<std::string>& files, const PageSink& sink);

// Pages present in the private anonymous memory of a process that may write it. Errors: it is not
// there, or may not be read.
Result<void> ReadHeapOf(pid_t pid, const PageSink& sink);

// The same of a program started for this: it prints a line once its memory is as it should be, and
// ends when its input does. Errors: it cannot be started, or ends at once.
Result<void> ReadHeapOfProgram(const std::vector<std::string>& command, const PageSink& sink);

// Programs that read what Debian installs into objects of theirs.
std::vector<std::vector<std::string>> HeapPrograms();

}  // namespace tmem
