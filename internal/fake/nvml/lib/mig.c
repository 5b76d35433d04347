/*
 * mig.c: where GPU instances and compute instances fit, and what keeps them there. A
 * process runs on a compute instance, so that keeps its GPU instance too.
 */
#include "hardware.h"

#include <stdlib.h>
#include <string.h>

profile *profile_by_number(const gpu *g, unsigned int number) {
  EACH(profile, p) if (p->gpu == g->index && p->number == number) return p;
  return NULL;
}

profile *profile_by_id(const gpu *g, unsigned int id) {
  EACH(profile, p) if (p->gpu == g->index && p->id == id) return p;
  return NULL;
}

profile *profile_of(const instance *i) {
  EACH(profile, p) if (p->gpu == i->gpu && p->id == i->profile) return p;
  abort(); /* Instances are made from profiles, and profiles do not go. */
}

instance *instance_at(const gpu *g, long long id) {
  EACH(instance, i) if (i->gpu == g->index && i->id == id) return i;
  return NULL;
}

static int overlap(long long a, long long a_size, long long b, long long b_size) {
  return a < b + b_size && b < a + a_size;
}

/* taken says whether memory slices of a place belong to an instance. */
static int taken(const gpu *g, long long start, long long size) {
  EACH(instance, i) {
    if (i->gpu == g->index && overlap(start, size, i->start, profile_of(i)->size)) return 1;
  }
  return 0;
}

/* allowed says whether the rules about engines and numbers let one more instance of a
 * profile live beside `more` of it and all that is there. The media extensions are one
 * set per GPU; an instance with all engines leaves the others none. */
static int allowed(const gpu *g, const profile *p, int more) {
  int same = more;
  EACH(instance, i) {
    if (i->gpu != g->index) continue;
    const profile *other = profile_of(i);
    same += other == p;
    if (p->media >= 2 && other->media >= 2) return 0;
    if (p->media == 3 && other->media) return 0;
    if (p->media && other->media == 3) return 0;
  }
  return same < p->max;
}

static int has_start(const profile *p, long long start) {
  for (int i = 0; i < p->starts.count; i++) if (p->starts.values[i] == start) return 1;
  return 0;
}

int profile_capacity(const gpu *g, const profile *p) {
  int n = 0;
  long long free_from = 0;
  for (int i = 0; i < p->starts.count && allowed(g, p, n); i++) {
    long long start = p->starts.values[i];
    if (start < free_from || taken(g, start, p->size)) continue;
    free_from = start + p->size;
    n++;
  }
  return n;
}

/* new_id is the lowest free id of those that the hardware has for a size: 0 for the
 * whole GPU, 1 and 2 for halves, 3 to 6 for quarters, from 7 for eighths. */
static long long new_id(const gpu *g, const profile *p) {
  long long whole = 0;
  EACH(profile, any) if (any->gpu == g->index && any->size > whole) whole = any->size;
  long long id = whole / p->size - 1;
  while (instance_at(g, id)) id++;
  return id;
}

nvmlReturn_t instance_create(gpu *g, const profile *p, long long start, instance **made) {
  if (start >= 0 && !has_start(p, start)) return NVML_ERROR_INVALID_ARGUMENT;
  if (!allowed(g, p, 0)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  for (int i = 0; start < 0 && i < p->starts.count; i++) {
    if (!taken(g, p->starts.values[i], p->size)) start = p->starts.values[i];
  }
  if (start < 0 || taken(g, start, p->size)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  long long id = new_id(g, p);
  instance *i = ADD(instance);
  i->gpu = g->index, i->id = id, i->profile = p->id, i->start = start;
  i->serial = ++the_machine()->next;
  state_changed();
  *made = i;
  return NVML_SUCCESS;
}

nvmlReturn_t instance_destroy(instance *i) {
  EACH(compute, c) if (c->gpu == i->gpu && c->instance == i->id) return NVML_ERROR_IN_USE;
  EACH(vgpu, v) if (v->gpu == i->gpu && v->instance == i->id) return NVML_ERROR_IN_USE;
  REMOVE_IF(activity, a, a->gpu == i->gpu && a->instance == i->id);
  REMOVE(instance, i);
  state_changed();
  return NVML_SUCCESS;
}

int compute_slices(const instance *i, unsigned int number) {
  static const int slices[] = {1, 2, 3, 4, 7, 8, 6};
  if (number >= sizeof slices / sizeof slices[0]) return 0;
  int n = slices[number], all = profile_of(i)->slices;
  return n <= all && !(n == 3 && all == 4) ? n : 0;
}

static int compute_taken(const instance *i, long long start, int slices) {
  EACH(compute, c) {
    if (c->gpu == i->gpu && c->instance == i->id && overlap(start, slices, c->start, c->slices)) return 1;
  }
  return 0;
}

int compute_capacity(const instance *i, int slices) {
  int n = 0;
  for (long long start = 0; start + slices <= profile_of(i)->slices;) {
    int free = !compute_taken(i, start, slices);
    n += free;
    start += free ? slices : 1;
  }
  return n;
}

static int has_compute(const instance *i, long long id) {
  EACH(compute, c) if (c->gpu == i->gpu && c->instance == i->id && c->id == id) return 1;
  return 0;
}

static int has_index(long long gpu, long long index) {
  EACH(compute, c) if (c->gpu == gpu && c->index == index) return 1;
  return 0;
}

nvmlReturn_t compute_create(instance *i, unsigned int number, long long start, compute **made) {
  int slices = compute_slices(i, number), all = profile_of(i)->slices;
  if (!slices) return NVML_ERROR_NOT_SUPPORTED;
  if (start + slices > all) return NVML_ERROR_INVALID_ARGUMENT;
  for (long long at = 0; start < 0 && at + slices <= all; at++) {
    if (!compute_taken(i, at, slices)) start = at;
  }
  if (start < 0 || compute_taken(i, start, slices)) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  long long id = 0, index = 0;
  while (has_compute(i, id)) id++;
  while (has_index(i->gpu, index)) index++;
  compute *c = ADD(compute);
  c->gpu = i->gpu, c->instance = i->id, c->id = id, c->profile = number;
  c->slices = slices, c->start = start, c->index = index;
  EACH(gpu, g) if (g->index == i->gpu) gpu_new_uuid(c->uuid, "MIG-", g);
  *made = c;
  return NVML_SUCCESS;
}

nvmlReturn_t compute_destroy(compute *c) {
  EACH(process, p) {
    if (p->gpu == c->gpu && p->instance == c->instance && p->compute == c->id) return NVML_ERROR_IN_USE;
  }
  REMOVE(compute, c);
  state_changed();
  return NVML_SUCCESS;
}
