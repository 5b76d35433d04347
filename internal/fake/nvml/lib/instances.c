/*
 * instances.c: NVML's face of MIG mode, GPU instance profiles and GPU instances.
 */
#include "call.h"
#include "hardware.h"

#include <stdio.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && !g->mig_capable) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS) *now = g->mig, *pending = g->mig_pending;
  return end(r);
}

nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && (mode > NVML_DEVICE_MIG_ENABLE || !activation)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = gpu_set_mig_mode(g, mode, activation);
  return end(r);
}

/* FILL_PROFILE fills what all versions of the profile's struct have. */
#define FILL_PROFILE(to, p)                                                            \
  ((to)->id = (p)->id, (to)->sliceCount = (p)->slices, (to)->instanceCount = (p)->max, \
   (to)->multiprocessorCount = (p)->sms, (to)->copyEngineCount = (p)->copies,          \
   (to)->decoderCount = (p)->decoders, (to)->encoderCount = (p)->encoders,             \
   (to)->jpegCount = (p)->jpegs, (to)->ofaCount = (p)->ofas, (to)->memorySizeMB = (p)->memory)

static void fill_profile(const profile *p, nvmlGpuInstanceProfileInfo_t *info) {
  FILL_PROFILE(info, p);
  info->isP2pSupported = 0;
}

static nvmlReturn_t fill_profile_v(const profile *p, nvmlGpuInstanceProfileInfo_v2_t *info) {
  nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)info;
  if (info->version == nvmlGpuInstanceProfileInfo_v2) {
    FILL_PROFILE(info, p);
    info->isP2pSupported = 0;
    snprintf(info->name, sizeof info->name, "MIG %.64s", p->name);
  } else if (v3->version == nvmlGpuInstanceProfileInfo_v3) {
    FILL_PROFILE(v3, p);
    snprintf(v3->name, sizeof v3->name, "MIG %.64s", p->name);
    v3->capabilities = p->graphics ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0;
  } else {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  return NVML_SUCCESS;
}

/* profiles_known refuses when profiles cannot be asked for: the GPU has none, or an old
 * driver lists them in MIG mode only. */
static nvmlReturn_t profiles_known(const gpu *g) {
  if (!g->mig_capable) return NVML_ERROR_NOT_SUPPORTED;
  return g->mig || !the_machine()->profiles_need_mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && (!info || number >= NVML_GPU_INSTANCE_PROFILE_COUNT)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = profiles_known(g);
  if (r != NVML_SUCCESS) return end(r);
  const profile *p = profile_by_number(g, number);
  if (p) fill_profile(p, info);
  return end(p ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && (!info || number >= NVML_GPU_INSTANCE_PROFILE_COUNT)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = profiles_known(g);
  if (r != NVML_SUCCESS) return end(r);
  const profile *p = profile_by_number(g, number);
  return end(p ? fill_profile_v(p, info) : NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && !info) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = profiles_known(g);
  if (r != NVML_SUCCESS) return end(r);
  const profile *p = profile_by_id(g, id);
  return end(p ? fill_profile_v(p, info) : NVML_ERROR_NOT_SUPPORTED);
}

/* begin_profile begins what root may do with a GPU and a profile of it. */
static nvmlReturn_t begin_profile(const char *function, nvmlDevice_t device, unsigned int id, gpu **g,
                                  profile **p) {
  nvmlReturn_t r = begin_root(function);
  if (r == NVML_SUCCESS) r = find_gpu(device, g);
  if (r == NVML_SUCCESS && !(*g)->mig_capable) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS && !(*p = profile_by_id(*g, id))) r = NVML_ERROR_NOT_SUPPORTED;
  return r;
}

static nvmlReturn_t begin_profile_in_mig(const char *function, nvmlDevice_t device, unsigned int id, gpu **g,
                                         profile **p) {
  nvmlReturn_t r = begin_profile(function, device, id, g, p);
  return r == NVML_SUCCESS && !(*g)->mig ? NVML_ERROR_NOT_SUPPORTED : r;
}

static nvmlReturn_t placements(const char *function, nvmlDevice_t device, unsigned int id,
                               nvmlGpuInstancePlacement_t *to, unsigned int *count) {
  gpu *g;
  profile *p;
  nvmlReturn_t r = begin_profile(function, device, id, &g, &p);
  if (r == NVML_SUCCESS && !count) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  *count = p->starts.count;
  for (int i = 0; to && i < p->starts.count; i++) to[i].start = p->starts.values[i], to[i].size = p->size;
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                        nvmlGpuInstancePlacement_t *to, unsigned int *count) {
  return placements(__func__, device, id, to, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                           nvmlGpuInstancePlacement_t *to, unsigned int *count) {
  return placements(__func__, device, id, to, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count) {
  gpu *g;
  profile *p;
  nvmlReturn_t r = begin_profile_in_mig(__func__, device, id, &g, &p);
  if (r == NVML_SUCCESS && !count) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) *count = profile_capacity(g, p);
  return end(r);
}

static nvmlReturn_t create(const char *function, nvmlDevice_t device, unsigned int id,
                           const nvmlGpuInstancePlacement_t *where, nvmlGpuInstance_t *to) {
  gpu *g;
  profile *p;
  instance *made;
  nvmlReturn_t r = begin_profile_in_mig(function, device, id, &g, &p);
  if (r == NVML_SUCCESS && (!to || (where && where->size != p->size))) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = instance_create(g, p, where ? (long long)where->start : -1, &made);
  if (r == NVML_SUCCESS) *to = handle_of_instance(made);
  return end(r);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to) {
  return create(__func__, device, id, NULL, to);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                      const nvmlGpuInstancePlacement_t *where,
                                                      nvmlGpuInstance_t *to) {
  static const nvmlGpuInstancePlacement_t nowhere = {0, 0};
  return create(__func__, device, id, where ? where : &nowhere, to);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_instance(handle, &g, &i);
  if (r == NVML_SUCCESS) r = instance_destroy(i);
  return end(r);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to,
                                       unsigned int *count) {
  gpu *g;
  profile *p;
  nvmlReturn_t r = begin_profile_in_mig(__func__, device, id, &g, &p);
  if (r == NVML_SUCCESS && (!to || !count)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  *count = 0;
  EACH(instance, i) if (i->gpu == g->index && i->profile == p->id) to[(*count)++] = handle_of_instance(i);
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *to) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && !g->mig) r = NVML_ERROR_NOT_SUPPORTED;
  if (r != NVML_SUCCESS) return end(r);
  const instance *i = instance_at(g, id);
  if (i) *to = handle_of_instance(i);
  return end(i ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_instance(handle, &g, &i);
  if (r != NVML_SUCCESS) return end(r);
  info->device = device_of_gpu(g);
  info->id = i->id;
  info->profileId = i->profile;
  info->placement.start = i->start;
  info->placement.size = profile_of(i)->size;
  return end(NVML_SUCCESS);
}
