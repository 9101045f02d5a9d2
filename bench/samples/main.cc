// SPDX-License-Identifier: GPL-2.0-only
// page_samples: makes samples of pages from what a Debian machine has, one raw image a kind.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <random>
#include <set>

#include "bench/samples/sample_sources.h"
#include "bench/samples/sample_writer.h"
#include "compress/sample_pages.h"

namespace tmem {
namespace {

struct Options {
  std::string out_dir;
  uint64_t mib = 64;
  uint64_t seed = 1;
  unsigned duplicate_percent = 50;
  std::vector<std::string> kinds;
  std::vector<pid_t> pids;
};

// Documentation and manual pages.
Result<void> AddText(const Options& options, const PageSink& sink) {
  return ReadTextFiles(FilesBelow({"/usr/share/man", "/usr/share/doc"}, options.seed), sink);
}

Result<void> AddBinaries(const Options& options, const PageSink& sink) {
  ReadElfFiles(FilesBelow({"/usr/lib/x86_64-linux-gnu"}, options.seed), sink);
  return Ok();
}

Result<void> AddHeap(const Options& options, const PageSink& sink) {
  bool wants_more = true;
  const PageSink counting = [&](PageView page) { return wants_more = sink(page); };
  for (const pid_t pid : options.pids) {
    if (const auto read = ReadHeapOf(pid, counting); !read) return read.error();
  }
  if (!options.pids.empty()) return Ok();
  for (const auto& program : HeapPrograms()) {
    const auto read = ReadHeapOfProgram(program, counting);
    if (!read) std::fprintf(stderr, "page_samples: left out: %s\n", read.error().message.c_str());
    if (!wants_more) break;
  }
  return Ok();
}

Result<void> AddMade(PageKind kind, const Options& options, const PageSink& sink) {
  uint64_t number = options.seed << 32;
  while (sink(PageView(MakeSamplePage(kind, number++)))) {
  }
  return Ok();
}

// Text, of which each page is, at the chosen rate, a copy of one before it.
Result<void> AddDuplicates(const Options& options, const PageSink& sink) {
  std::mt19937_64 random(options.seed);
  std::vector<PageBytes> originals;
  bool wants_more = true;
  return AddText(options, [&](PageView page) {
    while (!originals.empty() && random() % 100 < options.duplicate_percent && wants_more) {
      wants_more = sink(PageView(originals[random() % originals.size()]));
    }
    if (!wants_more) return false;
    std::copy(page.begin(), page.end(), originals.emplace_back().begin());
    return wants_more = sink(page);
  });
}

using AddPages = std::function<Result<void>(const Options&, const PageSink&)>;
struct Kind {
  const char* name;
  SampleWriter::Take take;
  AddPages add;
};

std::vector<Kind> Kinds() {
  const auto made = [](PageKind kind) -> AddPages {
    return [kind](const Options& options, const PageSink& sink) {
      return AddMade(kind, options, sink);
    };
  };
  using Take = SampleWriter::Take;
  return {{"text", Take::kDistinct, AddText},
          {"binaries", Take::kDistinct, AddBinaries},
          {"heap", Take::kDistinct, AddHeap},
          {"zero", Take::kAll, made(PageKind::kZero)},
          {"same-filled", Take::kAll, made(PageKind::kWord)},
          {"random", Take::kAll, made(PageKind::kRandom)},
          {"duplicates", Take::kAll, AddDuplicates}};
}

Result<void> Write(const Kind& kind, const Options& options) {
  SampleWriter writer(options.out_dir + "/" + kind.name + ".pages",
                      options.mib * (1 << 20) / kPageBytes, kind.take);
  const auto added = kind.add(options, [&](PageView page) { return writer.Add(page); });
  if (!added) return added.error();
  if (const auto finished = writer.Finish(); !finished) return finished.error();
  std::printf("%-12s %8llu pages; %llu same-filled and duplicate ones left out\n", kind.name,
              static_cast<unsigned long long>(writer.pages()),
              static_cast<unsigned long long>(writer.pages_left_out()));
  return Ok();
}

int Main(int argc, const char* const* argv) {
  Options options;
  std::set<std::string> names;
  for (const Kind& kind : Kinds()) names.insert(kind.name);
  CLI::App app{"page_samples writes DIR/KIND.pages, raw memory images of pages of each kind"};
  app.add_option("dir", options.out_dir, "where to")->required()->type_name("DIR");
  app.add_option("--mib", options.mib, "of each kind, at most")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--kind", options.kinds, "only these; default: all")->check(CLI::IsMember(names));
  app.add_option("--duplicates", options.duplicate_percent, "percent of copies in `duplicates`")
      ->check(CLI::Range(0, 99))
      ->capture_default_str();
  app.add_option("--pid", options.pids, "heap: of these processes, not of programs started for it");
  app.add_option("--seed", options.seed, "of all choices")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::error_code error;
  std::filesystem::create_directories(options.out_dir, error);
  if (error) {
    std::fprintf(stderr, "page_samples: %s: %s\n", options.out_dir.c_str(),
                 error.message().c_str());
    return 1;
  }
  for (const Kind& kind : Kinds()) {
    const auto& wanted = options.kinds;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kind.name) == wanted.end()) {
      continue;
    }
    if (const auto written = Write(kind, options); !written) {
      std::fprintf(stderr, "page_samples: %s\n", written.error().message.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return tmem::Main(argc, argv);
}
