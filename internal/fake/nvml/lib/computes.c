/*
 * computes.c: NVML's face of compute instances and of the MIG devices that they are.
 */
#include "call.h"
#include "hardware.h"

#include <stdio.h>

/* FILL_PROFILE fills what all versions of the profile's struct have. */
#define FILL_PROFILE(to, p, number, slices)                                            \
  ((to)->id = (number), (to)->sliceCount = (slices),                                   \
   (to)->instanceCount = (p)->slices / (slices),                                       \
   (to)->multiprocessorCount = (p)->sms * (slices) / (p)->slices,                      \
   (to)->sharedCopyEngineCount = (p)->copies, (to)->sharedDecoderCount = (p)->decoders, \
   (to)->sharedEncoderCount = (p)->encoders, (to)->sharedJpegCount = (p)->jpegs,       \
   (to)->sharedOfaCount = (p)->ofas)

static nvmlReturn_t begin_instance(nvmlReturn_t begun, nvmlGpuInstance_t handle, gpu **g, instance **i) {
  return begun == NVML_SUCCESS ? find_instance(handle, g, i) : begun;
}

static nvmlReturn_t offered(const instance *i, unsigned int number, unsigned int engines) {
  if (number >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return compute_slices(i, number) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int number,
                                                          unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin(__func__), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, number, engines);
  if (r != NVML_SUCCESS) return end(r);
  const profile *p = profile_of(i);
  int slices = compute_slices(i, number);
  FILL_PROFILE(info, p, number, slices);
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int number,
                                                           unsigned int engines,
                                                           nvmlComputeInstanceProfileInfo_v2_t *info) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin(__func__), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, number, engines);
  if (r != NVML_SUCCESS) return end(r);
  /* Version 3 is version 2 and one more member at its end. */
  int v3 = info->version == nvmlComputeInstanceProfileInfo_v3;
  if (!v3 && info->version != nvmlComputeInstanceProfileInfo_v2) return end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  const profile *p = profile_of(i);
  int slices = compute_slices(i, number);
  FILL_PROFILE(info, p, number, slices);
  char part[16] = "";
  if (slices < p->slices) snprintf(part, sizeof part, "%dc.", slices);
  snprintf(info->name, sizeof info->name, "MIG %s%.64s", part, p->name);
  if (v3) {
    nvmlComputeInstanceProfileInfo_v3_t *more = (nvmlComputeInstanceProfileInfo_v3_t *)info;
    more->capabilities = p->graphics ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0;
  }
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int id,
                                                                unsigned int *count) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin_root(__func__), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, id, 0);
  if (r == NVML_SUCCESS) *count = compute_capacity(i, compute_slices(i, id));
  return end(r);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int id,
                                                                 nvmlComputeInstancePlacement_t *to,
                                                                 unsigned int *count) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin_root(__func__), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, id, 0);
  if (r != NVML_SUCCESS) return end(r);
  int slices = compute_slices(i, id);
  *count = profile_of(i)->slices - slices + 1;
  for (unsigned int at = 0; to && at < *count; at++) to[at].start = at, to[at].size = slices;
  return end(NVML_SUCCESS);
}

static nvmlReturn_t create(const char *function, nvmlGpuInstance_t handle, unsigned int id,
                           const nvmlComputeInstancePlacement_t *where, nvmlComputeInstance_t *to) {
  gpu *g;
  instance *i;
  compute *made;
  nvmlReturn_t r = begin_instance(begin_root(function), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, id, 0);
  if (r == NVML_SUCCESS && where && (int)where->size != compute_slices(i, id)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = compute_create(i, id, where ? (long long)where->start : -1, &made);
  if (r == NVML_SUCCESS) *to = handle_of_compute(made);
  return end(r);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int id,
                                                  nvmlComputeInstance_t *to) {
  return create(__func__, handle, id, NULL, to);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned int id,
                                                               const nvmlComputeInstancePlacement_t *where,
                                                               nvmlComputeInstance_t *to) {
  static const nvmlComputeInstancePlacement_t nowhere = {0, 0};
  return create(__func__, handle, id, where ? where : &nowhere, to);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_compute(handle, &g, &c);
  if (r == NVML_SUCCESS) r = compute_destroy(c);
  return end(r);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *to,
                                                unsigned int *count) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin_root(__func__), handle, &g, &i);
  if (r == NVML_SUCCESS) r = offered(i, id, 0);
  if (r != NVML_SUCCESS) return end(r);
  *count = 0;
  EACH(compute, c) {
    if (c->gpu == i->gpu && c->instance == i->id && c->profile == id) to[(*count)++] = handle_of_compute(c);
  }
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id,
                                                   nvmlComputeInstance_t *to) {
  gpu *g;
  instance *i;
  nvmlReturn_t r = begin_instance(begin_root(__func__), handle, &g, &i);
  if (r != NVML_SUCCESS) return end(r);
  EACH(compute, c) {
    if (c->gpu != i->gpu || c->instance != i->id || c->id != id) continue;
    *to = handle_of_compute(c);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_NOT_FOUND);
}

/* nvml.h calls the device of a compute instance its parent. The driver gives its MIG
 * device, and NVIDIA's DRA driver relies on that. */
nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_compute(handle, &g, &c);
  if (r != NVML_SUCCESS) return end(r);
  info->device = device_of_compute(c);
  info->gpuInstance = handle_of_instance(instance_at(g, c->instance));
  info->id = c->id;
  info->profileId = c->profile;
  info->placement.start = c->start;
  info->placement.size = c->slices;
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r != NVML_SUCCESS) return end(r);
  *count = 0;
  EACH(profile, p) if (g->mig && p->gpu == g->index && p->max > *count) *count = p->max;
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *to) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && !g->mig_capable) r = NVML_ERROR_NOT_SUPPORTED;
  if (r != NVML_SUCCESS) return end(r);
  EACH(compute, c) {
    if (c->gpu != g->index || c->index != index) continue;
    *to = device_of_compute(c);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_NOT_FOUND);
}

/* begin_mig_device begins what only a MIG device has an answer to. */
static nvmlReturn_t begin_mig_device(const char *function, nvmlDevice_t device, gpu **g, compute **c) {
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS) r = find_device(device, g, c);
  return r == NVML_SUCCESS && !*c ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin_mig_device(__func__, device, &g, &c);
  if (r == NVML_SUCCESS) *id = c->instance;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin_mig_device(__func__, device, &g, &c);
  if (r == NVML_SUCCESS) *id = c->id;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin_mig_device(__func__, device, &g, &c);
  if (r == NVML_SUCCESS) *parent = device_of_gpu(g);
  return end(r);
}

static nvmlReturn_t attributes(const char *function, nvmlDevice_t device, nvmlDeviceAttributes_t *to) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin_mig_device(function, device, &g, &c);
  if (r != NVML_SUCCESS) return end(r);
  const profile *p = profile_of(instance_at(g, c->instance));
  to->multiprocessorCount = p->sms * c->slices / p->slices;
  to->sharedCopyEngineCount = p->copies;
  to->sharedDecoderCount = p->decoders;
  to->sharedEncoderCount = p->encoders;
  to->sharedJpegCount = p->jpegs;
  to->sharedOfaCount = p->ofas;
  to->gpuInstanceSliceCount = p->slices;
  to->computeInstanceSliceCount = c->slices;
  to->memorySizeMB = p->memory;
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *to) { return attributes(__func__, d, to); }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *to) { return attributes(__func__, d, to); }
