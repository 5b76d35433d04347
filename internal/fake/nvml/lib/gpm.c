/*
 * gpm.c: GPU performance monitoring: metrics between two samples of a GPU or of one of
 * its GPU instances.
 */
#include "call.h"
#include "hardware.h"

#include <stdlib.h>

struct nvmlGpmSample_st {
  int taken;
  activity figures;
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS && support->version != NVML_GPM_SUPPORT_VERSION) r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (r == NVML_SUCCESS) support->isSupportedDevice = g->gpm;
  return end(r);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
  nvmlReturn_t r = begin(__func__);
  if (r != NVML_SUCCESS) return end(r);
  sample->handle = calloc(1, sizeof *sample->handle);
  return end(sample->handle ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) free(sample.handle);
  return end(r);
}

static nvmlReturn_t take(const gpu *g, long long instance, nvmlGpmSample_t sample) {
  if (!g->gpm) return NVML_ERROR_NOT_SUPPORTED;
  sample.handle->taken = 1;
  sample.handle->figures = (activity){.gpu = g->index, .instance = instance};
  EACH(activity, a) if (a->gpu == g->index && a->instance == instance) sample.handle->figures = *a;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS) r = take(g, -1, sample);
  return end(r);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int id, nvmlGpmSample_t sample) {
  gpu *g;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && !instance_at(g, id)) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r == NVML_SUCCESS) r = take(g, id, sample);
  return end(r);
}

static nvmlReturn_t metric(const activity *a, const activity *b, nvmlGpmMetric_t *m) {
  switch (m->metricId) {
  case NVML_GPM_METRIC_GRAPHICS_UTIL: m->value = (a->graphics + b->graphics) / 2.0; break;
  case NVML_GPM_METRIC_SM_UTIL: m->value = b->sm < 0 ? __builtin_nan("") : (a->sm + b->sm) / 2.0; break;
  case NVML_GPM_METRIC_SM_OCCUPANCY: m->value = (a->occupancy + b->occupancy) / 2.0; break;
  case NVML_GPM_METRIC_DRAM_BW_UTIL: m->value = (a->dram + b->dram) / 2.0; break;
  default: return NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS && get->version != NVML_GPM_METRICS_GET_VERSION) r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (r != NVML_SUCCESS) return end(r);
  const struct nvmlGpmSample_st *a = get->sample1.handle, *b = get->sample2.handle;
  if (!a->taken || !b->taken || a->figures.gpu != b->figures.gpu || a->figures.instance != b->figures.instance) {
    return end(NVML_ERROR_INVALID_ARGUMENT);
  }
  for (unsigned int i = 0; i < get->numMetrics && i < NVML_GPM_METRIC_MAX; i++) {
    get->metrics[i].nvmlReturn = metric(&a->figures, &b->figures, &get->metrics[i]);
  }
  return end(NVML_SUCCESS);
}
