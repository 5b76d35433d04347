/*
 * gpu.c: who is on a GPU, what a reset and a reboot do to it, and its MIG mode.
 */
#include "hardware.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int bus_equal(const char *a, const char *b) {
  char *rest_a, *rest_b;
  unsigned long domain_a = strtoul(a, &rest_a, 16), domain_b = strtoul(b, &rest_b, 16);
  return domain_a == domain_b && !strcasecmp(rest_a, rest_b);
}

int gpu_workers(const gpu *g) {
  int n = 0;
  EACH(process, p) n += p->gpu == g->index && strcmp(p->kind, "client");
  return n;
}

static int alive(long long pid) { return !kill(pid, 0) || errno == EPERM; }

int gpu_holders(const gpu *g) {
  int n = g->persistence != 0;
  EACH(process, p) n += p->gpu == g->index;
  EACH(vgpu, v) n += v->gpu == g->index;
  EACH(client, c) n += c->pid != getpid() && alive(c->pid);
  return n;
}

/* What lasts from a GPU's first client to its last, where nothing keeps the GPU: NVIDIA's
 * "GPU Initialization Lifecycle". Assumption linux-last-client. */
void gpu_left(gpu *g) {
  if (gpu_holders(g)) return;
  g->compute_mode = NVML_COMPUTEMODE_DEFAULT;
  g->timeslice = 0;
}

long long gpu_used(const gpu *g) {
  long long used = 0;
  EACH(process, p) if (p->gpu == g->index) used += p->memory;
  return used;
}

static void drop_instances(const gpu *g) {
  REMOVE_IF(instance, i, i->gpu == g->index);
  REMOVE_IF(compute, c, c->gpu == g->index);
  REMOVE_IF(activity, a, a->gpu == g->index && a->instance >= 0);
}

void gpu_reset(gpu *g) {
  drop_instances(g);
  REMOVE_IF(vgpu, v, v->gpu == g->index);
  g->mig = g->mig_pending;
  g->ecc = g->ecc_pending;
  g->compute_mode = NVML_COMPUTEMODE_DEFAULT;
  g->timeslice = 0;
  g->vgpu_mixed = 0;
  g->vgpu_mig_sliced = 0;
  g->generation++;
  state_changed();
}

void host_reboot(void) {
  REMOVE_IF(process, p, 1);
  REMOVE_IF(client, c, 1);
  REMOVE_IF(limit, l, 1);
  EACH(gpu, g) {
    gpu_reset(g);
    g->persistence = 0;
    if (!g->mode_persists) g->mig = g->mig_pending = 0;
  }
  the_machine()->boot++;
  state_changed();
}

static int has_instances(const gpu *g) {
  EACH(instance, i) if (i->gpu == g->index) return 1;
  return 0;
}

nvmlReturn_t gpu_set_mig_mode(gpu *g, int mode, nvmlReturn_t *activation) {
  *activation = NVML_SUCCESS;
  if (!g->mig_capable) return NVML_ERROR_NOT_SUPPORTED;
  if (mode != g->mig && has_instances(g)) return *activation = NVML_ERROR_IN_USE;
  int held = gpu_holders(g) > 0, waits = g->mode_needs_reset == 1 || (g->mode_needs_reset == 2 && held);
  if (mode != g->mig && waits) {
    *activation = held ? NVML_ERROR_IN_USE : NVML_ERROR_RESET_REQUIRED;
  } else if (mode != g->mig) {
    if (gpu_workers(g)) return *activation = NVML_ERROR_IN_USE;
    g->mig = mode;
    g->compute_mode = NVML_COMPUTEMODE_DEFAULT;
  }
  g->mig_pending = mode;
  state_changed();
  return NVML_SUCCESS;
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

void gpu_new_uuid(char *to, const char *prefix, const gpu *g) {
  uint64_t seed = 0xcbf29ce484222325;
  for (const char *c = g->uuid; *c; c++) seed = (seed ^ *c) * 0x100000001b3;
  uint64_t a = mix(seed + ++the_machine()->next), b = mix(a);
  snprintf(to, TEXT_SIZE, "%s%08x-%04x-5%03x-%04x-%012llx", prefix, (unsigned)(a >> 32),
           (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)((b >> 48 & 0x3fff) | 0x8000),
           (unsigned long long)(b & 0xffffffffffff));
  state_changed();
}
