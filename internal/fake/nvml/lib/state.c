/*
 * state.c: reads and writes the machine's file, one process at a time.
 *
 * The file is replaced, never written in place: a process that is killed in the middle
 * of a call leaves the machine as it was.
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int lock = -1;
static int changed;
static char path[PATH_MAX];

/* What the tables hold, as text: a file that did not change is not parsed again. */
static char *known;
static size_t known_length;

machine *the_machine(void) { return table_first(IN_machine); }

void state_changed(void) { changed = 1; }

static int complain(const char *what) {
  fprintf(stderr, "fakenvml: %s %s: %s\n", what, path, errno ? strerror(errno) : "malformed");
  return -1;
}

static const char *beside(const char *suffix) {
  static char name[PATH_MAX + 8];
  snprintf(name, sizeof name, "%s%s", path, suffix);
  return name;
}

static void know(char *text, size_t length) {
  free(known);
  known = text;
  known_length = length;
}

/* read_file returns the whole state file, to be freed. */
static char *read_file(size_t *length) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  struct stat info;
  char *text = NULL;
  if (!fstat(file, &info) && (text = malloc(info.st_size + 1))) {
    ssize_t n = read(file, text, info.st_size);
    *length = n > 0 ? n : 0;
    text[*length] = 0;
  }
  close(file);
  return text;
}

/* load brings the tables to what the file holds. */
static int load(void) {
  size_t length = 0;
  char *text = read_file(&length);
  if (!text) return -1;
  errno = 0;
  if (known && length == known_length && !memcmp(text, known, length)) {
    free(text);
    return 0;
  }
  char *copy = strdup(text);
  int failed = !copy || records_parse(text);
  free(text);
  know(failed ? NULL : copy, length);
  if (failed) free(copy);
  return failed;
}

static void unlock(void) {
  close(lock);
  lock = -1;
}

int state_open(void) {
  const char *name = getenv(STATE_VARIABLE);
  snprintf(path, sizeof path, "%s", name ? name : "");
  errno = 0;
  if (!name) return complain(STATE_VARIABLE " is not set");
  lock = open(beside(".lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return complain("lock");
  while (flock(lock, LOCK_EX)) {
    if (errno != EINTR) {
      complain("lock");
      unlock();
      return -1;
    }
  }
  changed = 0;
  if (load()) {
    complain("read");
    unlock();
  }
  return lock < 0 ? -1 : 0;
}

static int write_file(void) {
  size_t length;
  char *text = records_print(&length), next[PATH_MAX + 8];
  if (!text) return -1;
  snprintf(next, sizeof next, "%s", beside(".new"));
  int file = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int failed = file < 0 || write(file, text, length) != (ssize_t)length;
  if (file >= 0) failed |= close(file);
  failed = failed || rename(next, path);
  know(failed ? NULL : text, length);
  if (failed) free(text);
  return failed ? -1 : 0;
}

int state_close(void) {
  int failed = changed && write_file() ? complain("write") : 0;
  unlock();
  return failed;
}

void state_log(const char *function, int code) {
  char line[160];
  int n = snprintf(line, sizeof line, "%d %s %d\n", getpid(), function, code);
  int file = open(beside(".calls"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (write(file, line, n) != n) complain("log a call of");
  close(file);
}
