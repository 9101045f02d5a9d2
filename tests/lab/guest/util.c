// SPDX-License-Identifier: GPL-2.0-only
// Events, options and small helpers of the guests' programs.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

static char** g_arguments;

void SetOptions(char** arguments) {
  g_arguments = arguments;
}

void Emit(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
  fflush(stdout);
}

void Die(const char* what) {
  Emit("{\"error\": \"%s: %s\"}", what, strerror(errno));
  exit(1);
}

double Now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

const char* Option(const char* name, const char* otherwise) {
  const size_t length = strlen(name);
  for (char** argument = g_arguments; *argument != NULL; argument++) {
    if (strncmp(*argument, name, length) == 0 && (*argument)[length] == '=') {
      return *argument + length + 1;
    }
  }
  if (otherwise == NULL) {
    errno = EINVAL;
    Die(name);
  }
  return otherwise;
}

uint64_t OptionNumber(const char* name, uint64_t otherwise) {
  const char* text = Option(name, "");
  return *text == '\0' ? otherwise : strtoull(text, NULL, 0);
}

void WaitForGo(void) {
  if (OptionNumber("sync", 0) == 0) return;
  char letter = 0;
  while (letter != '\n') {
    if (read(STDIN_FILENO, &letter, 1) != 1) Die("waiting for the host");
  }
}

void WriteString(const char* path, const char* text) {
  const int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) Die(path);
  close(file);
}

void DropCaches(void) {
  WriteString("/proc/sys/vm/drop_caches", "1");
}
