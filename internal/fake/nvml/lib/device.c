/*
 * device.c: which GPUs there are, and what each is.
 */
#include "call.h"
#include "hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nvmlReturn_t count(const char *function, unsigned int *n) {
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS && !n) r = NVML_ERROR_INVALID_ARGUMENT;
  if (r != NVML_SUCCESS) return end(r);
  *n = 0;
  EACH(gpu, g) ++*n; // one that is lost as well
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *n) { return count(__func__, n); }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { return count(__func__, n); }

static nvmlReturn_t by_index(const char *function, unsigned int index, nvmlDevice_t *device) {
  nvmlReturn_t r = begin(function);
  if (r != NVML_SUCCESS || !device) return end(r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT);
  EACH(gpu, g) {
    if (g->index != index) continue;
    if (g->lost) return end(NVML_ERROR_GPU_IS_LOST);
    *device = device_of_gpu(g);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
  return by_index(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  return by_index(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  nvmlReturn_t r = begin(__func__);
  if (r != NVML_SUCCESS || !uuid || !device) return end(r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT);
  EACH(gpu, g) {
    if (g->lost || strcmp(g->uuid, uuid)) continue;
    *device = device_of_gpu(g);
    return end(NVML_SUCCESS);
  }
  EACH(compute, c) {
    if (strcmp(c->uuid, uuid)) continue;
    *device = device_of_compute(c);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_NOT_FOUND);
}

static nvmlReturn_t by_bus(const char *function, const char *bus, nvmlDevice_t *device) {
  nvmlReturn_t r = begin(function);
  if (r != NVML_SUCCESS || !bus || !device) return end(r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT);
  EACH(gpu, g) {
    if (g->lost || !bus_equal(g->bus, bus)) continue;
    *device = device_of_gpu(g);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device) {
  return by_bus(__func__, bus, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
  return by_bus(__func__, bus, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
  nvmlReturn_t r = begin(__func__);
  if (r != NVML_SUCCESS || !serial || !device) return end(r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT);
  EACH(gpu, g) {
    if (g->lost || strcmp(g->serial, serial)) continue;
    *device = device_of_gpu(g);
    return end(NVML_SUCCESS);
  }
  return end(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS) r = put_text(uuid, length, c ? c->uuid : g->uuid);
  return end(r);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
  gpu *g;
  compute *c;
  char text[3 * TEXT_SIZE];
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r != NVML_SUCCESS) return end(r);
  snprintf(text, sizeof text, "%s", g->name);
  if (c) {
    const profile *p = profile_of(instance_at(g, c->instance));
    char part[32] = "";
    if (c->slices < p->slices) snprintf(part, sizeof part, "%lldc.", c->slices);
    snprintf(text, sizeof text, "%s MIG %s%s", g->name, part, p->name);
  }
  return end(put_text(name, length, text));
}

/* The getters of one text or number of a GPU, which its MIG devices have too. */

#define TEXT_GETTER(function, member)                                                  \
  nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length) {        \
    gpu *g;                                                                            \
    compute *c;                                                                        \
    nvmlReturn_t r = begin(__func__);                                                  \
    if (r == NVML_SUCCESS) r = find_device(device, &g, &c);                            \
    if (r == NVML_SUCCESS && !*g->member) r = NVML_ERROR_NOT_SUPPORTED;                \
    if (r == NVML_SUCCESS) r = put_text(text, length, g->member);                      \
    return end(r);                                                                     \
  }

TEXT_GETTER(nvmlDeviceGetSerial, serial)
TEXT_GETTER(nvmlDeviceGetBoardPartNumber, board)
TEXT_GETTER(nvmlDeviceGetVbiosVersion, vbios)

#define NUMBER_GETTER(function, type, expression)                                      \
  nvmlReturn_t function(nvmlDevice_t device, type *value) {                            \
    gpu *g;                                                                            \
    compute *c;                                                                        \
    nvmlReturn_t r = begin(__func__);                                                  \
    if (r == NVML_SUCCESS) r = find_device(device, &g, &c);                            \
    if (r == NVML_SUCCESS && !value) r = NVML_ERROR_INVALID_ARGUMENT;                  \
    if (r == NVML_SUCCESS) *value = (type)(expression);                                \
    return end(r);                                                                     \
  }

NUMBER_GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, NVML_BRAND_NVIDIA)
NUMBER_GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, g->arch)
NUMBER_GETTER(nvmlDeviceGetIndex, unsigned int, c ? c->index : g->index)
NUMBER_GETTER(nvmlDeviceGetMinorNumber, unsigned int, g->minor)
NUMBER_GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, g->persistence)
NUMBER_GETTER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
              g->vgpu_host ? NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU : NVML_GPU_VIRTUALIZATION_MODE_NONE)
NUMBER_GETTER(nvmlDeviceIsMigDeviceHandle, unsigned int, c != NULL)

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS && g->numa < 0) r = NVML_ERROR_NOT_SUPPORTED;
  if (r == NVML_SUCCESS) *node = g->numa;
  return end(r);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS) *major = g->cc_major, *minor = g->cc_minor;
  return end(r);
}

static void fill_pci(const gpu *g, nvmlPciInfo_t *pci) {
  memset(pci, 0, sizeof *pci);
  unsigned int domain = 0, bus = 0, slot = 0;
  sscanf(g->bus, "%x:%x:%x", &domain, &bus, &slot);
  pci->domain = domain, pci->bus = bus, pci->device = slot;
  pci->pciDeviceId = g->device_id, pci->pciSubSystemId = g->subsystem_id;
  snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, domain, bus, slot);
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, domain & 0xffff,
           bus & 0xff, slot & 0xff);
}

static nvmlReturn_t pci_info(const char *function, nvmlDevice_t device, nvmlPciInfo_t *pci) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(function);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS) fill_pci(g, pci);
  return end(r);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci); }
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci) { return pci_info(__func__, d, pci); }

/* memory_of gives the memory of a GPU or MIG device, in bytes. */
static void memory_of(const gpu *g, const compute *c, nvmlMemory_v2_t *m) {
  m->total = g->memory, m->reserved = g->reserved, m->used = gpu_used(g);
  if (c) {
    m->total = profile_of(instance_at(g, c->instance))->memory << 20, m->reserved = 0, m->used = 0;
    EACH(process, p) if (p->gpu == g->index && p->instance == c->instance) m->used += p->memory;
  }
  m->free = m->total - m->reserved - m->used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r != NVML_SUCCESS) return end(r);
  nvmlMemory_v2_t m;
  memory_of(g, c, &m);
  memory->total = m.total, memory->free = m.free, memory->used = m.used + m.reserved;
  return end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  gpu *g;
  compute *c;
  nvmlReturn_t r = begin(__func__);
  if (r == NVML_SUCCESS) r = find_device(device, &g, &c);
  if (r == NVML_SUCCESS && memory->version != VERSION_OF(*memory, 2)) r = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (r == NVML_SUCCESS) memory_of(g, c, memory);
  return end(r);
}
