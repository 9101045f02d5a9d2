/* SPDX-License-Identifier: GPL-2.0-only */
// What the commands of the guest's `workload` program share: pages whose contents follow from a
// seed, one line of JSON an event on standard output, options.
#ifndef TESTS_LAB_GUEST_LAB_H_
#define TESTS_LAB_GUEST_LAB_H_

#include <stddef.h>
#include <stdint.h>

#define kPageBytes 4096ul
#define kPageWords (kPageBytes / 8)

/* ---- pages.c ---- */

/*
 * Heap-like pages, generated: of every 100 pages about 10 are zero, 5 are unstamped copies of one
 * of kTemplates pages, and 85 are such a page with kStamps words that follow from seed, index and
 * version.
 */
#define kTemplates 256u
#define kStamps 4u

struct PageSource {
  uint64_t seed;
  uint64_t* templates; /* kTemplates pages */
};

uint64_t Mix(uint64_t value);
void PageSourceInit(struct PageSource* source, uint64_t seed);
void PageFill(const struct PageSource* source, uint64_t index, uint64_t version, uint64_t* page);
/* 1 if every byte of `page` is as PageFill would have written it. */
int PageIsRight(const struct PageSource* source, uint64_t index, uint64_t version,
                const uint64_t* page);
/* The sum that index files of corpora hold for each page; depends on the order of its words. */
uint64_t PageSum(const uint64_t* page);

/* ---- util.c ---- */

/* The arguments name=value, ended by NULL, that Option() looks at. */
void SetOptions(char** arguments);
/* Prints one JSON object as a line and hands it over at once. */
void Emit(const char* format, ...) __attribute__((format(printf, 1, 2)));
/* Prints {"error": ...} with the system's reason and exits with 1. */
void Die(const char* what) __attribute__((noreturn));
double Now(void);
/* Waits for a line "go" on standard input if the host asked for that with sync=1. */
void WaitForGo(void);
/* The value of argument `name=value`, or `otherwise`. */
const char* Option(const char* name, const char* otherwise);
uint64_t OptionNumber(const char* name, uint64_t otherwise);
/* Writes a string to a file of /proc or /sys; dies if that fails. */
void WriteString(const char* path, const char* text);
void DropCaches(void);

/* ---- pass.c ---- */

/* One pass of a workload; the workload sets pages and counts the rest. */
struct Pass {
  uint64_t number;
  const char* kind;
  uint64_t pages;
  uint64_t wrong;
  uint64_t sigbus;
  double median_us; /* of single reads; 0: not measured */
  double p99_us;
  double start_s;
  uint64_t system_ticks; /* at the start */
  uint64_t busy_ticks;
};

/*
 * Both print an event and wait for the host if sync=1, and then add an event with the module's
 * counters outside of what the host measures.
 */
void BeginPass(struct Pass* pass, uint64_t number, const char* kind);
void EndPass(const struct Pass* pass);
/* A page that does not hold what it should; says so for the first few. */
void WrongPage(struct Pass* pass, uint64_t page);

/* ---- stream.c ---- */

uint64_t* ReadSums(const char* path, uint64_t pages);
/* Reads pass->pages pages from end to end and compares each with its sum. */
void ReadWholeFile(struct Pass* pass, const char* path, const uint64_t* sums);
/* In pieces with pauses, so that a host that gets the processor now and then takes all pages. */
void DropFileSlowly(const char* path, uint64_t pages);

/* ---- commands; each returns the process's exit code ---- */

int StreamCommand(void);   /* stream.c */
int MakeFileCommand(void); /* stream.c */
int SumsCommand(void);     /* stream.c */
int HogCommand(void);      /* hog.c */
int RandomCommand(void);   /* random.c */
int TreeCommand(void);     /* tree.c */
int MakeTreeCommand(void); /* tree.c */
int FileOpsCommand(void);  /* fileops.c */
int RemountCommand(void);  /* remount.c */
int DmCryptCommand(void);  /* dmcrypt.c */
int ChurnCommand(void);    /* churn.c */
int FaultsCommand(void);   /* faults.c */

#endif  // TESTS_LAB_GUEST_LAB_H_
