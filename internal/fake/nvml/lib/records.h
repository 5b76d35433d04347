/*
 * records.h: what a machine is made of, and the tables that hold it.
 *
 * The state file has one record per line: its kind, then all its fields as key=value.
 * The Go package fakenvml writes the first state and reads the same file; its
 * records.go names the same kinds and fields in the same order. A field is declared
 * once, here: the lists below make the C structs and what the parser knows of them.
 */
#ifndef NVMLTEST_RECORDS_H
#define NVMLTEST_RECORDS_H

#include <stddef.h>

/* Each list takes the kind and what to make of a number, a text and a list of numbers. */

/* The host. init_error is what every call answers while the driver is unusable; boot
 * changes when the host starts again; next makes serials and UUIDs that never return. */
#define machine_FIELDS(T, NUM, TEXT, LIST)                                       \
  TEXT(T, driver) TEXT(T, nvml) NUM(T, cuda) NUM(T, init_error) NUM(T, root)     \
  NUM(T, profiles_need_mig) NUM(T, boot) NUM(T, next)

/* A GPU. mode_persists: the MIG mode outlives a reboot; mode_needs_reset: a change of
 * it waits for a reset, always (1) or while somebody holds the GPU (2). ecc is -1 where
 * there is none. generation changes when handles to the GPU become void. sick is what its
 * calls answer, but those for what it is, and hang how many microseconds each takes. */
#define gpu_FIELDS(T, NUM, TEXT, LIST)                                           \
  NUM(T, index) TEXT(T, uuid) TEXT(T, name) TEXT(T, bus) NUM(T, device_id)       \
  NUM(T, subsystem_id) NUM(T, arch) NUM(T, cc_major) NUM(T, cc_minor)            \
  NUM(T, minor) TEXT(T, serial) TEXT(T, board) TEXT(T, vbios) NUM(T, numa)       \
  NUM(T, memory) NUM(T, reserved) NUM(T, mig_capable) NUM(T, mode_persists)      \
  NUM(T, mode_needs_reset) NUM(T, mig) NUM(T, mig_pending) NUM(T, compute_mode)  \
  NUM(T, ecc) NUM(T, ecc_pending) NUM(T, persistence) NUM(T, busy)               \
  NUM(T, memory_busy) NUM(T, timeslice) NUM(T, vgpu_host) NUM(T, vgpu_mixable)   \
  NUM(T, vgpu_mixed) NUM(T, vgpu_mig_slices) NUM(T, vgpu_mig_sliced)             \
  NUM(T, gpm) NUM(T, generation) NUM(T, lost)                                    \
  NUM(T, sick) NUM(T, hang)

/* A GPU instance profile. number is NVML's NVML_GPU_INSTANCE_PROFILE_*, id the
 * hardware's: they differ. Memory is in MiB; media is 0 none, 1 its share, 2 the
 * media extensions (+me), 3 all of the GPU's engines (+me.all). */
#define profile_FIELDS(T, NUM, TEXT, LIST)                                       \
  NUM(T, gpu) NUM(T, number) NUM(T, id) TEXT(T, name) NUM(T, slices)             \
  NUM(T, memory) NUM(T, sms) NUM(T, copies) NUM(T, decoders) NUM(T, encoders)    \
  NUM(T, jpegs) NUM(T, ofas) NUM(T, media) NUM(T, graphics) NUM(T, max)          \
  NUM(T, size) LIST(T, starts)

/* A GPU instance. Ids are reused, serials never. */
#define instance_FIELDS(T, NUM, TEXT, LIST)                                      \
  NUM(T, gpu) NUM(T, id) NUM(T, profile) NUM(T, start) NUM(T, serial)

/* A compute instance, which is a MIG device at an index under its GPU. */
#define compute_FIELDS(T, NUM, TEXT, LIST)                                       \
  NUM(T, gpu) NUM(T, instance) NUM(T, id) NUM(T, profile) NUM(T, slices)         \
  NUM(T, start) NUM(T, index) TEXT(T, uuid)

/* A process on a GPU. kind is compute, graphics, mps, or client for one that holds the
 * GPU open without working on it. instance and compute are -1 outside of MIG. */
#define process_FIELDS(T, NUM, TEXT, LIST)                                       \
  NUM(T, gpu) NUM(T, pid) TEXT(T, name) TEXT(T, kind) NUM(T, memory)             \
  NUM(T, instance) NUM(T, compute) NUM(T, busy)

/* A process that has initialised NVML, and how often. It holds every GPU open. */
#define client_FIELDS(T, NUM, TEXT, LIST) NUM(T, pid) NUM(T, inits)

/* An NVLink: peer is the bus id of a GPU, or "switch". */
#define nvlink_FIELDS(T, NUM, TEXT, LIST) NUM(T, gpu) NUM(T, number) TEXT(T, peer)

/* A vGPU type that a GPU supports. instance_profile is -1 for time-sliced types. */
#define vgputype_FIELDS(T, NUM, TEXT, LIST)                                      \
  NUM(T, gpu) NUM(T, id) TEXT(T, name) TEXT(T, class) TEXT(T, license)           \
  NUM(T, framebuffer) NUM(T, max) NUM(T, max_per_vm) NUM(T, heads)               \
  NUM(T, instance_profile)

/* A vGPU that runs. instance is the GPU instance below it, or -1. */
#define vgpu_FIELDS(T, NUM, TEXT, LIST)                                          \
  NUM(T, gpu) NUM(T, id) NUM(T, type) NUM(T, instance) TEXT(T, uuid) TEXT(T, vm)

/* A memory limit of a cgroup on a GPU; hard is -1 for none. */
#define limit_FIELDS(T, NUM, TEXT, LIST)                                         \
  NUM(T, gpu) TEXT(T, cgroup) NUM(T, soft) NUM(T, hard)

/* How busy a GPU (instance -1) or a GPU instance is, in percent, for GPM. */
#define activity_FIELDS(T, NUM, TEXT, LIST)                                      \
  NUM(T, gpu) NUM(T, instance) NUM(T, graphics) NUM(T, sm) NUM(T, occupancy)     \
  NUM(T, dram)

/* A fault: skip calls of the function pass, then the next `times` fail with the code.
 * effect: the call does its work first. kill: the process dies instead. */
#define fault_FIELDS(T, NUM, TEXT, LIST)                                         \
  TEXT(T, function) NUM(T, skip) NUM(T, times) NUM(T, code) NUM(T, effect)       \
  NUM(T, kill)

/* How long each call of a function takes; "*" is every function. */
#define delay_FIELDS(T, NUM, TEXT, LIST) TEXT(T, function) NUM(T, microseconds)

#define RECORDS(R)                                                               \
  R(machine) R(gpu) R(profile) R(instance) R(compute) R(process) R(client)       \
  R(nvlink) R(vgputype) R(vgpu) R(limit) R(activity) R(fault) R(delay)

#define TEXT_SIZE 256
#define LIST_SIZE 16

typedef struct {
  int count;
  int values[LIST_SIZE];
} numbers;

#define MEMBER_NUM(T, key) long long key;
#define MEMBER_TEXT(T, key) char key[TEXT_SIZE];
#define MEMBER_LIST(T, key) numbers key;
#define STRUCT(T) typedef struct { T##_FIELDS(T, MEMBER_NUM, MEMBER_TEXT, MEMBER_LIST) } T;
RECORDS(STRUCT)

#define NUMBER(T) IN_##T,
enum { RECORDS(NUMBER) TABLES };

/* EACH runs over the records of a kind. Adding one moves them all: find again. */
#define EACH(T, it) \
  for (T *it = table_first(IN_##T), *it##_end = it + table_count(IN_##T); it < it##_end; it++)

/* ADD returns a new record, all zero; REMOVE takes one out, and the rest moves up. */
#define ADD(T) ((T *)table_add(IN_##T))
#define REMOVE(T, it) table_remove(IN_##T, it)

/* REMOVE_IF takes out all records for which the condition on `it` holds. */
#define REMOVE_IF(T, it, condition)                                              \
  for (T *it = table_first(IN_##T);                                              \
       it < (T *)table_first(IN_##T) + table_count(IN_##T);) {                   \
    if (condition) REMOVE(T, it); else it++;                                     \
  }

void *table_first(int kind);
int table_count(int kind);
void *table_add(int kind);
void table_remove(int kind, void *record);

/* records_parse replaces all tables by those of a text; 0 on success. */
int records_parse(char *text);
/* records_print returns all tables as text, to be freed, and its length. */
char *records_print(size_t *length);

#endif
