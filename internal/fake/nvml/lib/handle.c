/*
 * handle.c: handles to GPUs, MIG devices, GPU instances and compute instances.
 *
 * A handle remembers what it was made for. It is void in another session of NVML, the
 * GPU behind it is lost once that was reset or replaced, and what was destroyed is not
 * found, even when another instance has its id now.
 */
#include "call.h"
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

process_state fakenvml_process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { TO_GPU = 1, TO_MIG_DEVICE, TO_INSTANCE, TO_COMPUTE };

struct handle {
  int to;
  int session;
  long long gpu, generation;
  char key[TEXT_SIZE]; /* a UUID, or the serial of a GPU instance */
  handle *next;
};

void process_follow(void) {
  const char *machine = getenv(STATE_VARIABLE);
  process_state *p = &fakenvml_process;
  if (!strcmp(p->machine, machine) && p->boot == the_machine()->boot) return;
  snprintf(p->machine, sizeof p->machine, "%s", machine);
  p->boot = the_machine()->boot;
  p->inits = 0;
  p->session++;
}

gpu *gpu_at(long long index) {
  EACH(gpu, g) if (g->index == index) return g;
  return NULL;
}

/* intern returns the one handle to a thing: callers compare them. */
static void *intern(int to, const gpu *g, const char *key) {
  process_state *p = &fakenvml_process;
  for (handle *h = p->handles; h; h = h->next) {
    if (h->to == to && h->session == p->session && h->gpu == g->index &&
        h->generation == g->generation && !strcmp(h->key, key)) {
      return h;
    }
  }
  handle *h = calloc(1, sizeof *h);
  if (!h) abort();
  h->to = to, h->session = p->session, h->gpu = g->index, h->generation = g->generation;
  snprintf(h->key, sizeof h->key, "%s", key);
  h->next = p->handles;
  return p->handles = h;
}

nvmlDevice_t device_of_gpu(const gpu *g) {
  return (nvmlDevice_t){intern(TO_GPU, g, g->uuid)};
}

nvmlDevice_t device_of_compute(const compute *c) {
  return (nvmlDevice_t){intern(TO_MIG_DEVICE, gpu_at(c->gpu), c->uuid)};
}

nvmlGpuInstance_t handle_of_instance(const instance *i) {
  char serial[32];
  snprintf(serial, sizeof serial, "%lld", i->serial);
  return (nvmlGpuInstance_t){intern(TO_INSTANCE, gpu_at(i->gpu), serial)};
}

nvmlComputeInstance_t handle_of_compute(const compute *c) {
  return (nvmlComputeInstance_t){intern(TO_COMPUTE, gpu_at(c->gpu), c->uuid)};
}

/* check finds the handle and its GPU. */
static nvmlReturn_t check(const void *pointer, handle **found, gpu **g) {
  handle *h = fakenvml_process.handles;
  while (h && h != pointer) h = h->next;
  if (!h || h->session != fakenvml_process.session) return NVML_ERROR_INVALID_ARGUMENT;
  *found = h;
  nvmlReturn_t ill = ails(h->gpu);
  *g = gpu_at(h->gpu);
  if (!*g || (*g)->lost || (*g)->generation != h->generation) return NVML_ERROR_GPU_IS_LOST;
  return h->to == TO_GPU && strcmp((*g)->uuid, h->key) ? NVML_ERROR_GPU_IS_LOST : ill;
}

static compute *compute_of(const handle *h) {
  EACH(compute, c) if (c->gpu == h->gpu && !strcmp(c->uuid, h->key)) return c;
  return NULL;
}

nvmlReturn_t find_device(nvmlDevice_t device, gpu **g, compute **c) {
  handle *h;
  nvmlReturn_t r = check(device.handle, &h, g);
  *c = NULL;
  if (r != NVML_SUCCESS || h->to == TO_GPU) return r;
  if (h->to != TO_MIG_DEVICE) return NVML_ERROR_INVALID_ARGUMENT;
  *c = compute_of(h);
  return *c ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t find_gpu(nvmlDevice_t device, gpu **g) {
  compute *c;
  nvmlReturn_t r = find_device(device, g, &c);
  return r == NVML_SUCCESS && c ? NVML_ERROR_INVALID_ARGUMENT : r;
}

nvmlReturn_t find_instance(nvmlGpuInstance_t pointer, gpu **g, instance **i) {
  handle *h;
  nvmlReturn_t r = check(pointer.handle, &h, g);
  if (r != NVML_SUCCESS) return r;
  if (h->to != TO_INSTANCE) return NVML_ERROR_INVALID_ARGUMENT;
  EACH(instance, it) {
    if (it->gpu == h->gpu && it->serial == atoll(h->key)) {
      *i = it;
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t find_compute(nvmlComputeInstance_t pointer, gpu **g, compute **c) {
  handle *h;
  nvmlReturn_t r = check(pointer.handle, &h, g);
  if (r != NVML_SUCCESS) return r;
  if (h->to != TO_COMPUTE) return NVML_ERROR_INVALID_ARGUMENT;
  *c = compute_of(h);
  return *c ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
