/*
 * links.c: NVLinks: which are up, and what is at their other end.
 */
#include "call.h"
#include "hardware.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t begin_link(const char *function, nvmlDevice_t device, unsigned int number, nvlink **found) {
  gpu *g;
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS) r = find_gpu(device, &g);
  if (r == NVML_SUCCESS && number >= NVML_NVLINK_MAX_LINKS) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return r;
  EACH(nvlink, l) {
    if (l->gpu != g->index || l->number != number) continue;
    *found = l;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number, nvmlEnableState_t *state) {
  nvlink *l;
  nvmlReturn_t r = begin_link(__func__, device, number, &l);
  if (r == NVML_SUCCESS) *state = NVML_FEATURE_ENABLED;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number,
                                                 nvmlIntNvLinkDeviceType_t *type) {
  nvlink *l;
  nvmlReturn_t r = begin_link(__func__, device, number, &l);
  if (r == NVML_SUCCESS) *type = strcmp(l->peer, "switch") ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
  return end(r);
}

static nvmlReturn_t remote(const char *function, nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci) {
  nvlink *l;
  nvmlReturn_t r = begin_link(function, device, number, &l);
  if (r != NVML_SUCCESS) return end(r);
  memset(pci, 0, sizeof *pci);
  if (strcmp(l->peer, "switch")) {
    snprintf(pci->busId, sizeof pci->busId, "%.31s", l->peer);
    sscanf(l->peer, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  }
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t d, unsigned int n, nvmlPciInfo_t *pci) {
  return remote(__func__, d, n, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int n, nvmlPciInfo_t *pci) {
  return remote(__func__, d, n, pci);
}
