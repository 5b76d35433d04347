/*
 * hardware.h: what GPUs and their driver do, whoever asks: a program through NVML,
 * nvidia-smi, or the operator of the machine.
 */
#ifndef NVMLTEST_HARDWARE_H
#define NVMLTEST_HARDWARE_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "state.h"

/* bus_equal compares PCI addresses, whatever the width of their domain. */
int bus_equal(const char *a, const char *b);

/* Who is on a GPU. A worker computes or draws; a holder is a worker, a program that
 * keeps the GPU open, the persistence daemon, a vGPU or a user of NVML but this one. */
int gpu_workers(const gpu *g);
int gpu_holders(const gpu *g);
void gpu_left(gpu *g);

/* gpu_used is the memory of its processes, in bytes. */
long long gpu_used(const gpu *g);

/* gpu_reset brings a GPU back as after a reset. It does not ask who holds it. */
void gpu_reset(gpu *g);
/* host_reboot does so to all GPUs, and ends all processes. */
void host_reboot(void);

/* gpu_set_mig_mode does what nvmlDeviceSetMigMode does. */
nvmlReturn_t gpu_set_mig_mode(gpu *g, int mode, nvmlReturn_t *activation);

/* Profiles, by NVML's number or the hardware's id. NULL when the GPU has none such. */
profile *profile_by_number(const gpu *g, unsigned int number);
profile *profile_by_id(const gpu *g, unsigned int id);
profile *profile_of(const instance *i);
instance *instance_at(const gpu *g, long long id);

/* profile_capacity is how many more instances of a profile fit. */
int profile_capacity(const gpu *g, const profile *p);

/* instance_create makes a GPU instance; at start -1 the driver chooses the place: the
 * first that is free, even where another choice would leave room for more. */
nvmlReturn_t instance_create(gpu *g, const profile *p, long long start, instance **made);
nvmlReturn_t instance_destroy(instance *i);

/* Compute instance profiles of a GPU instance: the slices of one of NVML's numbers,
 * which are the hardware's ids here too; 0 when the GPU instance does not offer it. */
int compute_slices(const instance *i, unsigned int number);
int compute_capacity(const instance *i, int slices);
nvmlReturn_t compute_create(instance *i, unsigned int number, long long start, compute **made);
nvmlReturn_t compute_destroy(compute *c);

/* gpu_new_uuid writes a UUID that never comes again, after a prefix. */
void gpu_new_uuid(char *to, const char *prefix, const gpu *g);

#endif
