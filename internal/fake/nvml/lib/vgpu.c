/*
 * vgpu.c: vGPU types, which of them could be created now, and the vGPUs that run.
 *
 * NVML does not create vGPUs: sysfs does. The operator of the machine adds them.
 */
#include "call.h"
#include "hardware.h"

#include <string.h>

/* begin_host begins what only a GPU under the vGPU host driver has an answer to. */
static nvmlReturn_t begin_host(nvmlReturn_t begun, nvmlDevice_t device, gpu **g) {
  if (begun == NVML_SUCCESS) begun = find_gpu(device, g);
  return begun == NVML_SUCCESS && !(*g)->vgpu_host ? NVML_ERROR_NOT_SUPPORTED : begun;
}

nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, nvmlHostVgpuMode_t *mode) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(__func__), device, &g);
  if (r == NVML_SUCCESS) *mode = NVML_HOST_VGPU_MODE_SRIOV;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, nvmlDeviceVgpuCapability_t capability,
                                           unsigned int *result) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(__func__), device, &g);
  if (r == NVML_SUCCESS && capability >= NVML_DEVICE_VGPU_CAP_COUNT) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  switch (capability) {
  case NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES: *result = g->vgpu_mixable; break;
  case NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED: *result = g->vgpu_mig_slices; break;
  case NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED: *result = g->vgpu_mig_sliced; break;
  default: *result = 0;
  }
  return end(r);
}

nvmlReturn_t nvmlDeviceSetVgpuCapabilities(nvmlDevice_t device, nvmlDeviceVgpuCapability_t capability,
                                           nvmlEnableState_t state) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin_root(__func__), device, &g);
  if (r == NVML_SUCCESS && capability != NVML_DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS && !g->vgpu_mig_slices) r = NVML_ERROR_NOT_SUPPORTED;
  if (r != NVML_SUCCESS) return end(r);
  g->vgpu_mig_sliced = state == NVML_FEATURE_ENABLED;
  state_changed();
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device, nvmlVgpuHeterogeneousMode_t *mode) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(__func__), device, &g);
  if (r == NVML_SUCCESS && (g->mig || !g->vgpu_mixable)) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS && mode->version != nvmlVgpuHeterogeneousMode_v1) r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (r == NVML_SUCCESS) mode->mode = g->vgpu_mixed;
  return end(r);
}

nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device, const nvmlVgpuHeterogeneousMode_t *mode) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin_root(__func__), device, &g);
  if (r == NVML_SUCCESS && (g->mig || !g->vgpu_mixable)) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS && mode->version != nvmlVgpuHeterogeneousMode_v1) r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (r == NVML_SUCCESS && mode->mode > NVML_FEATURE_ENABLED) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  EACH(vgpu, v) if (v->gpu == g->index) return end(NVML_ERROR_IN_USE);
  g->vgpu_mixed = mode->mode;
  state_changed();
  return end(NVML_SUCCESS);
}

static vgputype *type_at(long long gpu, long long id) {
  EACH(vgputype, t) if (t->gpu == gpu && t->id == id) return t;
  return NULL;
}

/* creatable says whether one more vGPU of a type fits beside those that run: in MIG
 * mode into a GPU instance of its own, else within the memory, and with the same frame
 * buffer as the others unless sizes may be mixed. */
static int creatable(const gpu *g, const vgputype *t) {
  if (g->mig != (t->instance_profile >= 0)) return 0;
  long long used = 0, same = 0, instances = 0, taken = 0;
  EACH(instance, i) instances += i->gpu == g->index && i->profile == t->instance_profile;
  EACH(vgpu, v) {
    if (v->gpu != g->index) continue;
    const vgputype *other = type_at(g->index, v->type);
    if (!other) continue;
    if (!g->mig && !g->vgpu_mixed && other->framebuffer != t->framebuffer) return 0;
    used += other->framebuffer, same += v->type == t->id;
    taken += other->instance_profile == t->instance_profile;
  }
  if (g->mig) return taken < instances;
  return same < t->max && used + t->framebuffer <= g->memory;
}

static nvmlReturn_t types(const char *function, nvmlDevice_t device, int now, unsigned int *count,
                          nvmlVgpuTypeId_t *to) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(function), device, &g);
  if (r == NVML_SUCCESS && !count) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  unsigned int n = 0, room = to ? *count : 0;
  EACH(vgputype, t) {
    if (t->gpu != g->index || (now && !creatable(g, t))) continue;
    if (n < room) to[n] = t->id;
    n++;
  }
  *count = n;
  return end(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t d, unsigned int *n, nvmlVgpuTypeId_t *to) {
  return types(__func__, d, 0, n, to);
}

nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t d, unsigned int *n, nvmlVgpuTypeId_t *to) {
  return types(__func__, d, 1, n, to);
}

static nvmlReturn_t begin_type(const char *function, nvmlVgpuTypeId_t id, vgputype **type) {
  nvmlReturn_t r = begin(function);
  if (r != NVML_SUCCESS) return r;
  EACH(vgputype, t) {
    if (t->id != id) continue;
    *type = t;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t type_text(nvmlReturn_t begun, const char *text, char *to, unsigned int *size) {
  if (begun != NVML_SUCCESS) return begun;
  unsigned int room = *size;
  *size = strlen(text) + 1;
  return put_text(to, room, text);
}

nvmlReturn_t nvmlVgpuTypeGetName(nvmlVgpuTypeId_t id, char *to, unsigned int *size) {
  vgputype *t = NULL;
  nvmlReturn_t r = begin_type(__func__, id, &t);
  return end(type_text(r, t ? t->name : "", to, size));
}

nvmlReturn_t nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t id, char *to, unsigned int *size) {
  vgputype *t = NULL;
  nvmlReturn_t r = begin_type(__func__, id, &t);
  return end(type_text(r, t ? t->class : "", to, size));
}

nvmlReturn_t nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t id, char *to, unsigned int size) {
  vgputype *t;
  nvmlReturn_t r = begin_type(__func__, id, &t);
  if (r == NVML_SUCCESS) r = put_text(to, size, t->license);
  return end(r);
}

#define TYPE_GETTER(function, type, member)                                            \
  nvmlReturn_t function(nvmlVgpuTypeId_t id, type *value) {                            \
    vgputype *t;                                                                       \
    nvmlReturn_t r = begin_type(__func__, id, &t);                                     \
    if (r == NVML_SUCCESS) *value = (type)t->member;                                   \
    return end(r);                                                                     \
  }

TYPE_GETTER(nvmlVgpuTypeGetFramebufferSize, unsigned long long, framebuffer)
TYPE_GETTER(nvmlVgpuTypeGetMaxInstancesPerVm, unsigned int, max_per_vm)
TYPE_GETTER(nvmlVgpuTypeGetNumDisplayHeads, unsigned int, heads)
TYPE_GETTER(nvmlVgpuTypeGetGpuInstanceProfileId, unsigned int, instance_profile)

nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t id, unsigned int *count) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(__func__), device, &g);
  if (r != NVML_SUCCESS) return end(r);
  const vgputype *t = type_at(g->index, id);
  if (t) *count = t->max;
  return end(t ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count, nvmlVgpuInstance_t *to) {
  gpu *g;
  nvmlReturn_t r = begin_host(begin(__func__), device, &g);
  if (r == NVML_SUCCESS && !count) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  unsigned int n = 0, room = to ? *count : 0;
  EACH(vgpu, v) {
    if (v->gpu != g->index) continue;
    if (n < room) to[n] = v->id;
    n++;
  }
  *count = n;
  return end(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

static nvmlReturn_t begin_vgpu(const char *function, nvmlVgpuInstance_t id, vgpu **found) {
  nvmlReturn_t r = begin(function);
  if (r != NVML_SUCCESS) return r;
  EACH(vgpu, v) {
    if (v->id != id) continue;
    *found = v;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlVgpuInstanceGetType(nvmlVgpuInstance_t id, nvmlVgpuTypeId_t *type) {
  vgpu *v;
  nvmlReturn_t r = begin_vgpu(__func__, id, &v);
  if (r == NVML_SUCCESS) *type = v->type;
  return end(r);
}

nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t id, char *uuid, unsigned int size) {
  vgpu *v;
  nvmlReturn_t r = begin_vgpu(__func__, id, &v);
  if (r == NVML_SUCCESS) r = put_text(uuid, size, v->uuid);
  return end(r);
}

nvmlReturn_t nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t id, char *vm, unsigned int size, nvmlVgpuVmIdType_t *type) {
  vgpu *v;
  nvmlReturn_t r = begin_vgpu(__func__, id, &v);
  if (r == NVML_SUCCESS) r = put_text(vm, size, v->vm);
  if (r == NVML_SUCCESS) *type = NVML_VGPU_VM_ID_UUID;
  return end(r);
}

nvmlReturn_t nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t id, unsigned int *instance) {
  vgpu *v;
  nvmlReturn_t r = begin_vgpu(__func__, id, &v);
  if (r == NVML_SUCCESS) *instance = v->instance;
  return end(r);
}
