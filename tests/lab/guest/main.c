// SPDX-License-Identifier: GPL-2.0-only
// The guest's `workload` program: runs the command that its first argument names.
#include <stdio.h>
#include <string.h>

#include "lab.h"

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(void);
  } kCommands[] = {
      {"stream", StreamCommand},     {"makefile", MakeFileCommand}, {"hog", HogCommand},
      {"fileops", FileOpsCommand},   {"remount", RemountCommand},   {"sums", SumsCommand},
      {"dmcrypt", DmCryptCommand},   {"random", RandomCommand},     {"tree", TreeCommand},
      {"maketree", MakeTreeCommand}, {"churn", ChurnCommand},       {"faults", FaultsCommand},
  };
  for (size_t i = 0; argc > 1 && i < sizeof(kCommands) / sizeof(kCommands[0]); i++) {
    if (strcmp(argv[1], kCommands[i].name) == 0) {
      SetOptions(argv + 2);
      return kCommands[i].run();
    }
  }
  fprintf(stderr,
          "usage: workload stream|makefile|hog|fileops|remount|dmcrypt|random|tree|maketree|churn|"
          "faults [name=value ...]\n");
  return 2;
}
