// SPDX-License-Identifier: GPL-2.0-only
// Pages of live processes.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "bench/samples/sample_sources.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

// Longer ranges are address space that was reserved rather than a heap, such as a sanitizer's
// shadow of 16 TiB, which takes hours to look through.
constexpr uint64_t kMaxRangeBytes = uint64_t{64} << 30;

struct Range {
  uint64_t begin, end;
};

// Nameless or [heap], private, readable and writable.
std::vector<Range> AnonymousRanges(pid_t pid) {
  std::vector<Range> ranges;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string addresses, permissions, offset, device, inode, name;
    fields >> addresses >> permissions >> offset >> device >> inode >> name;
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(addresses.c_str(), "%llx-%llx", &begin, &end) != 2) continue;
    const bool is_heap = permissions == "rw-p" && (name.empty() || name == "[heap]");
    if (is_heap && end - begin <= kMaxRangeBytes) ranges.push_back({begin, end});
  }
  return ranges;
}

// Of /proc/PID/pagemap: the page is in memory.
bool IsPresent(int pagemap, uint64_t address) {
  uint64_t entry = 0;
  const auto offset = static_cast<off_t>(address / kPageBytes * sizeof(entry));
  return ::pread(pagemap, &entry, sizeof(entry), offset) == sizeof(entry) && entry >> 63 != 0;
}

// Started with its input and output in pipes of ours; ends when those do.
class Program {
 public:
  static Result<Program> Start(std::vector<std::string> command) {
    int input[2], output[2];
    if (::pipe2(input, O_CLOEXEC) != 0) return SystemError("pipe");
    const UniqueFd its_input(input[0]);
    UniqueFd our_output(input[1]);
    if (::pipe2(output, O_CLOEXEC) != 0) return SystemError("pipe");
    UniqueFd our_input(output[0]);
    const UniqueFd its_output(output[1]);
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, its_input.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, its_output.get(), STDOUT_FILENO);
    pid_t pid = -1;
    const int failed =
        ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), ::environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return SystemError("start " + command[0], failed);
    return Program(pid, std::move(our_output), std::move(our_input));
  }
  Program(Program&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        to_(std::move(other.to_)),
        from_(std::move(other.from_)) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    to_.Close();
    from_.Close();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  // False when it ended without a word.
  bool WaitForLine() const {
    char letter = 0;
    while (letter != '\n') {
      const ssize_t read = ::read(from_.get(), &letter, 1);
      if (read < 0 && errno == EINTR) continue;
      if (read != 1) return false;
    }
    return true;
  }

 private:
  Program(pid_t pid, UniqueFd to, UniqueFd from)
      : pid_(pid), to_(std::move(to)), from_(std::move(from)) {}
  pid_t pid_;
  UniqueFd to_, from_;
};

}  // namespace

Result<void> ReadHeapOf(pid_t pid, const PageSink& sink) {
  const std::string process = "/proc/" + std::to_string(pid);
  const UniqueFd memory(::open((process + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory.valid()) return SystemError("open " + process + "/mem");
  const UniqueFd pagemap(::open((process + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  if (!pagemap.valid()) return SystemError("open " + process + "/pagemap");
  alignas(64) std::array<std::byte, kPageBytes> page;
  for (const Range& range : AnonymousRanges(pid)) {
    for (uint64_t address = range.begin; address < range.end; address += kPageBytes) {
      if (!IsPresent(pagemap.get(), address)) continue;
      const ssize_t read =
          ::pread(memory.get(), page.data(), page.size(), static_cast<off_t>(address));
      if (read != static_cast<ssize_t>(page.size())) continue;  // gone meanwhile
      if (!sink(PageView(page))) return Ok();
    }
  }
  return Ok();
}

Result<void> ReadHeapOfProgram(const std::vector<std::string>& command, const PageSink& sink) {
  const auto program = Program::Start(command);
  if (!program) return program.error();
  if (!program->WaitForLine()) {
    return Error{ErrorCode::kUnavailable, command[0] + " ended before its memory could be read"};
  }
  return ReadHeapOf(program->pid(), sink);
}

std::vector<std::vector<std::string>> HeapPrograms() {
  // Syntax trees, parsed JSON, dictionaries of words: objects of an interpreter.
  static const char* const kPython =
      "import ast, glob, json, os, sys\n"
      "held = []\n"
      "for path in sorted(glob.glob(os.path.dirname(os.__file__) + '/*.py'))[:90]:\n"
      "    text = open(path, encoding='utf-8', errors='replace').read()\n"
      "    held.append(ast.parse(text))\n"
      "    words = text.split()\n"
      "    held.append({word: words.count(word) for word in words[:2000]})\n"
      "    held.append(json.loads(json.dumps([{'n': i, 'w': w} for i, w in enumerate(words)])))\n"
      "print('ready', flush=True)\n"
      "sys.stdin.read()\n";
  // Hashes of arrays of strings.
  static const char* const kPerl =
      "my %held; for my $path (sort glob('/usr/share/perl/*/*.p[ml]')) {"
      "  open(my $file, '<', $path) or next; my $n = 0;"
      "  while (<$file>) { push @{$held{$_}}, [$n++, split ' ', $_] for split ' ', $_ } }"
      "$| = 1; print \"ready\\n\"; <STDIN>;";
  // Shell variables.
  static const char* const kBash =
      "declare -A held; i=0; while read -r line; do held[$i]=\"$line\"; i=$((i + 1)); done"
      " < <(cat /usr/share/common-licenses/* /etc/*.conf 2>/dev/null); echo ready; read -r _";
  return {{"bash", "-c", kBash}, {"perl", "-e", kPerl}, {"python3", "-c", kPython}};
}

}  // namespace tmem
