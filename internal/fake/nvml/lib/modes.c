/*
 * modes.c: persistence, ECC, compute mode, and the memory limits of cgroups.
 */
#include "call.h"
#include "hardware.h"

#include <string.h>

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r != NVML_SUCCESS) return end(r);
  g->persistence = mode != NVML_FEATURE_DISABLED;
  state_changed();
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *pending) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && g->ecc < 0) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS) *now = g->ecc, *pending = g->ecc_pending;
  return end(r);
}

nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t mode) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && g->ecc < 0) r = NVML_ERROR_NOT_SUPPORTED;
  if (r != NVML_SUCCESS) return end(r);
  g->ecc_pending = mode;
  state_changed();
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS) *mode = c ? NVML_COMPUTEMODE_DEFAULT : g->compute_mode;
  return end(r);
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  compute *c;
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r != NVML_SUCCESS) return end(r);
  /* EXCLUSIVE_THREAD went with CUDA 8; a GPU in MIG mode knows DEFAULT alone. */
  if (mode >= NVML_COMPUTEMODE_COUNT) return end(NVML_ERROR_INVALID_ARGUMENT);
  if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) return end(NVML_ERROR_NOT_SUPPORTED);
  if (g->mig && mode != NVML_COMPUTEMODE_DEFAULT) return end(NVML_ERROR_NOT_SUPPORTED);
  g->compute_mode = mode;
  state_changed();
  return end(NVML_SUCCESS);
}

static limit *limit_of(const gpu *g, const char *cgroup) {
  EACH(limit, l) if (l->gpu == g->index && !strcmp(l->cgroup, cgroup)) return l;
  return NULL;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *wanted) {
  gpu *g;
  nvmlReturn_t r = begin_root(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r != NVML_SUCCESS) return end(r);
  if (g->mig) return end(NVML_ERROR_NOT_SUPPORTED);
  if (!wanted || !wanted->nameSpace || strlen(wanted->nameSpace) >= TEXT_SIZE) return end(NVML_ERROR_INVALID_ARGUMENT);
  int unlimited = wanted->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX;
  if (wanted->softLimit > wanted->hardLimit || wanted->softLimit > (unsigned long long)g->memory ||
      (!unlimited && wanted->hardLimit > (unsigned long long)g->memory)) {
    return end(NVML_ERROR_INVALID_ARGUMENT);
  }
  limit *l = limit_of(g, wanted->nameSpace);
  state_changed();
  if (unlimited && !wanted->softLimit) {
    if (l) REMOVE(limit, l);
    return end(NVML_SUCCESS);
  }
  if (!l) l = ADD(limit);
  l->gpu = g->index, l->soft = wanted->softLimit, l->hard = unlimited ? -1 : (long long)wanted->hardLimit;
  strcpy(l->cgroup, wanted->nameSpace);
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r != NVML_SUCCESS) return end(r);
  if (g->mig) return end(NVML_ERROR_NOT_SUPPORTED);
  if (!limits || !limits->nameSpace) return end(NVML_ERROR_INVALID_ARGUMENT);
  const limit *l = limit_of(g, limits->nameSpace);
  if (!l) return end(NVML_ERROR_NOT_FOUND);
  limits->softLimit = l->soft;
  limits->hardLimit = l->hard < 0 ? NVML_DEVICE_MEMORY_LIMIT_MAX : (unsigned long long)l->hard;
  limits->currentUsed = 0;
  return end(NVML_SUCCESS);
}
