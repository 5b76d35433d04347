/*
 * processes.c: who runs on a GPU, and how busy it is.
 */
#include "call.h"
#include "hardware.h"

#include <string.h>

/* matching says whether a process is of a kind and on a device. */
static int matching(const process *p, const gpu *g, const compute *c, const char *kind) {
  if (p->gpu != g->index || strcmp(p->kind, kind)) return 0;
  return !c || (p->instance == c->instance && p->compute == c->id);
}

/* list_processes fills a caller's array. A GPU in MIG mode tells root alone what runs on it. */
static nvmlReturn_t list_processes(const char *function, nvmlDevice_t device, const char *kind, int v1,
                                   unsigned int *count, void *to) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS && !count) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS && g->mig && !the_machine()->root) r = NVML_ERROR_NO_PERMISSION;
  if (r != NVML_SUCCESS) return end(r);
  unsigned int n = 0, room = to ? *count : 0;
  EACH(process, p) {
    if (!matching(p, g, c, kind)) continue;
    if (n < room && v1) {
      nvmlProcessInfo_v1_t *info = (nvmlProcessInfo_v1_t *)to + n;
      info->pid = p->pid, info->usedGpuMemory = p->memory;
    } else if (n < room) {
      nvmlProcessInfo_t *info = (nvmlProcessInfo_t *)to + n;
      info->pid = p->pid, info->usedGpuMemory = p->memory;
      info->gpuInstanceId = p->instance, info->computeInstanceId = p->compute;
    }
    n++;
  }
  *count = n;
  return end(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* Versions 2 and 3 of a call have the same struct. */
#define PROCESS_LIST(function, kind)                                                               \
  nvmlReturn_t function(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v1_t *to) {               \
    return list_processes(__func__, d, kind, 1, n, to);                                            \
  }                                                                                                \
  nvmlReturn_t function##_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *to) {          \
    return list_processes(__func__, d, kind, 0, n, to);                                            \
  }                                                                                                \
  nvmlReturn_t function##_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *to) {             \
    return list_processes(__func__, d, kind, 0, n, to);                                            \
  }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, "compute")
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS && g->mig) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS) utilization->gpu = g->busy, utilization->memory = g->memory_busy;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *to,
                                             unsigned int *count, unsigned long long since) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && g->mig) r = NVML_ERROR_NOT_SUPPORTED;
  if (r != NVML_SUCCESS) return end(r);
  unsigned int n = 0, room = to ? *count : 0;
  EACH(process, p) {
    if (p->gpu != g->index || !p->busy) continue;
    if (n < room) {
      memset(&to[n], 0, sizeof to[n]);
      to[n].pid = p->pid, to[n].smUtil = p->busy, to[n].timeStamp = since + 1;
    }
    n++;
  }
  *count = n;
  if (!n) return end(NVML_ERROR_NOT_FOUND);
  return end(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
