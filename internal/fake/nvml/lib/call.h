/*
 * call.h: what every call of NVML begins and ends with, and the handles it is given.
 */
#ifndef NVMLTEST_CALL_H
#define NVMLTEST_CALL_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "state.h"

/*
 * A call is one of:
 *
 *     nvmlReturn_t r = begin(__func__);
 *     if (r == NVML_SUCCESS) r = ...;
 *     return end(r);
 *
 * begin takes the machine's lock, counts the call, lets its delay pass and its faults
 * strike, and refuses it while NVML is not initialised. end writes what changed. Every
 * begin has its end.
 */
nvmlReturn_t begin(const char *function);
nvmlReturn_t end(nvmlReturn_t result);

/* begin_uninitialized is begin for what needs no nvmlInit. */
nvmlReturn_t begin_uninitialized(const char *function);

gpu *gpu_at(long long index);

/* ails says what the call that runs answers for a GPU, after the time that it takes. What
 * was found before is void after it. */
nvmlReturn_t ails(long long gpu);

/* begin_root is begin for what only root may do. */
nvmlReturn_t begin_root(const char *function);

/* nvml_opened and nvml_closed count the calls of nvmlInit and nvmlShutdown. */
void nvml_opened(void);
nvmlReturn_t nvml_closed(void);

/* Handles. They are void after the last nvmlShutdown, and when the GPU was reset. */
nvmlDevice_t device_of_gpu(const gpu *g);
nvmlDevice_t device_of_compute(const compute *c);
nvmlGpuInstance_t handle_of_instance(const instance *i);
nvmlComputeInstance_t handle_of_compute(const compute *c);

/* find_gpu finds the GPU of a device that is no MIG device. find_device takes both:
 * *c is NULL for a GPU, and *g is the MIG device's GPU. */
nvmlReturn_t find_gpu(nvmlDevice_t device, gpu **g);
nvmlReturn_t find_device(nvmlDevice_t device, gpu **g, compute **c);
nvmlReturn_t find_instance(nvmlGpuInstance_t handle, gpu **g, instance **i);
nvmlReturn_t find_compute(nvmlComputeInstance_t handle, gpu **g, compute **c);

/* put_text copies a text to a caller's buffer. */
nvmlReturn_t put_text(char *to, unsigned int size, const char *text);

/* VERSION_OF is what the version member of a caller's struct must be. */
#define VERSION_OF(structure, version) ((unsigned int)sizeof(structure) | (version) << 24)

#endif
