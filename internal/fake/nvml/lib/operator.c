/*
 * operator.c: what others do to the machine behind the back of who is tested, for the
 * Go package fakenvml: by the rules of the hardware, without NVML.
 *
 *     operator reboot
 *     operator reset GPU
 *     operator create GPU PROFILE START      a GPU instance, filled by one compute instance
 *     operator destroy GPU START             the same, backwards
 *
 * A GPU is an index, a profile a name.
 */
#include "call.h"
#include "hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpu *gpu_named(const char *index) {
  EACH(gpu, g) if (g->index == atoi(index)) return g;
  return NULL;
}

static nvmlReturn_t create(gpu *g, const char *name, long long start) {
  const profile *p = NULL;
  EACH(profile, it) if (it->gpu == g->index && !strcmp(it->name, name)) p = it;
  if (!p) return NVML_ERROR_NOT_FOUND;
  if (!g->mig) return NVML_ERROR_NOT_SUPPORTED;
  instance *i;
  nvmlReturn_t r = instance_create(g, p, start, &i);
  if (r != NVML_SUCCESS) return r;
  for (unsigned int number = 0; number < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; number++) {
    compute *c;
    if (compute_slices(i, number) == p->slices) return compute_create(i, number, 0, &c);
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

static compute *compute_in(const instance *i) {
  EACH(compute, c) if (c->gpu == i->gpu && c->instance == i->id) return c;
  return NULL;
}

static nvmlReturn_t destroy(gpu *g, long long start) {
  instance *found = NULL;
  EACH(instance, i) if (i->gpu == g->index && i->start == start) found = i;
  if (!found) return NVML_ERROR_NOT_FOUND;
  for (compute *c; (c = compute_in(found));) {
    nvmlReturn_t r = compute_destroy(c);
    if (r != NVML_SUCCESS) return r;
  }
  return instance_destroy(found);
}

static nvmlReturn_t run(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "reboot")) {
    host_reboot();
    return NVML_SUCCESS;
  }
  gpu *g = argc > 2 ? gpu_named(argv[2]) : NULL;
  if (!g) return NVML_ERROR_INVALID_ARGUMENT;
  if (argc == 3 && !strcmp(argv[1], "reset")) {
    gpu_reset(g);
    return NVML_SUCCESS;
  }
  if (argc == 5 && !strcmp(argv[1], "create")) return create(g, argv[3], atoi(argv[4]));
  if (argc == 4 && !strcmp(argv[1], "destroy")) return destroy(g, atoi(argv[3]));
  return NVML_ERROR_INVALID_ARGUMENT;
}

int main(int argc, char **argv) {
  if (state_open()) return 1;
  nvmlReturn_t r = run(argc, argv);
  if (r != NVML_SUCCESS) fprintf(stderr, "%s\n", nvmlErrorString(r));
  return state_close() || r != NVML_SUCCESS;
}
