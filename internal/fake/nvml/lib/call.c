/*
 * call.c: the beginning and the end of a call: lock, count, delay, fault, permission.
 */
#include "call.h"
#include "hardware.h"
#include "process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *current; /* the function that runs, under the mutex */
static fault struck;        /* what end must answer instead; code 0 for nothing */

/* same says whether two names are one function: versions of it count as one. */
static int same(const char *a, const char *b) {
  size_t n = strcspn(a, "_"), m = strcspn(b, "_");
  return n == m && !strncmp(a, b, n);
}

static long long delay_of(const char *function) {
  EACH(delay, d) if (same(d->function, function)) return d->microseconds;
  EACH(delay, d) if (!strcmp(d->function, "*")) return d->microseconds;
  return 0;
}

static int open_machine(void) {
  pthread_mutex_lock(&fakenvml_process.mutex);
  if (!state_open()) return 0;
  pthread_mutex_unlock(&fakenvml_process.mutex);
  return -1;
}

static void close_machine(void) {
  state_close();
  pthread_mutex_unlock(&fakenvml_process.mutex);
}

static void die(int code) {
  state_log(current, code);
  state_close();
  raise(SIGKILL);
}

/* strike returns the error of a fault that is due. */
static nvmlReturn_t strike(void) {
  memset(&struck, 0, sizeof struck);
  EACH(fault, f) {
    if (!same(f->function, current) || !f->times) continue;
    state_changed();
    if (f->skip) {
      f->skip--;
      continue;
    }
    f->times--;
    if (f->effect) {
      struck = *f;
      return NVML_SUCCESS;
    }
    if (f->kill) die(f->code);
    return f->code;
  }
  return NVML_SUCCESS;
}

static __thread int opened; /* whether end has a machine to close */

nvmlReturn_t begin_uninitialized(const char *function) {
  opened = 0;
  if (open_machine()) return NVML_ERROR_UNKNOWN;
  long long wait = delay_of(function);
  if (wait) {
    close_machine();
    struct timespec time = {wait / 1000000, wait % 1000000 * 1000};
    nanosleep(&time, NULL);
    if (open_machine()) return NVML_ERROR_UNKNOWN;
  }
  opened = 1;
  current = function;
  process_follow();
  return strike();
}

nvmlReturn_t begin(const char *function) {
  nvmlReturn_t r = begin_uninitialized(function);
  if (!opened || r != NVML_SUCCESS) return r;
  if (!fakenvml_process.inits) return NVML_ERROR_UNINITIALIZED;
  return the_machine()->init_error;
}

nvmlReturn_t begin_root(const char *function) {
  nvmlReturn_t r = begin(function);
  if (r != NVML_SUCCESS) return r;
  return the_machine()->root ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

nvmlReturn_t end(nvmlReturn_t result) {
  if (!opened) return result;
  if (struck.code && result == NVML_SUCCESS) result = struck.code;
  if (struck.kill) die(result);
  state_log(current, result);
  close_machine();
  return result;
}

nvmlReturn_t ails(long long index) {
  static const char *const identity[] = {"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo"};
  gpu *g = gpu_at(index);
  const char *function = current;
  for (size_t i = 0; i < sizeof identity / sizeof *identity; i++) {
    if (same(function, identity[i])) return NVML_SUCCESS;
  }
  const struct timespec look = {0, 10000000};
  for (long long waited = 0; g && waited < g->hang; waited += 10000) {
    close_machine();
    nanosleep(&look, NULL);
    if (open_machine()) {
      opened = 0;
      return NVML_ERROR_UNKNOWN;
    }
    current = function;
    g = gpu_at(index);
  }
  return g ? g->sick : NVML_ERROR_GPU_IS_LOST;
}

static client *this_client(void) {
  EACH(client, c) if (c->pid == getpid()) return c;
  return NULL;
}

void nvml_opened(void) {
  client *c = this_client();
  if (!c) {
    c = ADD(client);
    c->pid = getpid();
  }
  c->inits++;
  fakenvml_process.inits++;
  state_changed();
}

nvmlReturn_t nvml_closed(void) {
  if (!fakenvml_process.inits) return NVML_ERROR_UNINITIALIZED;
  client *c = this_client();
  if (!--fakenvml_process.inits) {
    fakenvml_process.session++;
    if (c) REMOVE(client, c);
    EACH(gpu, g) gpu_left(g);
  } else if (c) {
    c->inits--;
  }
  state_changed();
  return NVML_SUCCESS;
}

nvmlReturn_t put_text(char *to, unsigned int size, const char *text) {
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(to, text);
  return NVML_SUCCESS;
}
