/*
 * smi.c: an nvidia-smi that resets GPUs and sets their time slice.
 *
 *     nvidia-smi -L
 *     nvidia-smi --gpu-reset [-i GPU,...]
 *     nvidia-smi compute-policy [-i GPU,...] -l | --set-timeslice N
 *
 * A GPU is a UUID, an index or a PCI address. What a reset prints, the table of
 * policies and the words about a policy that was set are those of driver 535.
 */
#include "call.h"
#include "hardware.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit statuses of the real program. */
enum { DONE = 0, BAD_ARGUMENT = 2, NO_PERMISSION = 4, NOT_FOUND = 6, FAILED = 255 };

enum { MAX_GPUS = 64 };

static gpu *chosen[MAX_GPUS];
static int chosen_count;

static int is_named(const gpu *g, const char *name) {
  char *rest;
  long index = strtol(name, &rest, 10);
  return !strcmp(g->uuid, name) || bus_equal(g->bus, name) || (*name && !*rest && index == g->index);
}

/* choose finds the GPUs of a list, or all of them. */
static int choose(char *names) {
  chosen_count = 0;
  EACH(gpu, g) if (!names && !g->lost && chosen_count < MAX_GPUS) chosen[chosen_count++] = g;
  char *rest;
  for (char *name = names ? strtok_r(names, ",", &rest) : NULL; name; name = strtok_r(NULL, ",", &rest)) {
    gpu *found = NULL;
    EACH(gpu, g) if (!g->lost && is_named(g, name)) found = g;
    if (!found || chosen_count == MAX_GPUS) {
      puts("No devices were found");
      return NOT_FOUND;
    }
    chosen[chosen_count++] = found;
  }
  return DONE;
}

static int is_chosen(const char *bus) {
  for (int i = 0; i < chosen_count; i++) if (bus_equal(chosen[i]->bus, bus)) return 1;
  return 0;
}

/* left_behind says whether a GPU has an NVLink to one that is not reset with it. */
static int left_behind(const gpu *g) {
  EACH(nvlink, l) {
    if (l->gpu == g->index && strcmp(l->peer, "switch") && !is_chosen(l->peer)) return 1;
  }
  return 0;
}

static int reset_chosen(void) {
  int held = 0, linked = 0;
  for (int i = 0; i < chosen_count; i++) held += gpu_holders(chosen[i]) > 0, linked += left_behind(chosen[i]);
  if (!held && !linked) {
    for (int i = 0; i < chosen_count; i++) {
      gpu_reset(chosen[i]);
      printf("GPU %s was successfully reset.\n", chosen[i]->bus);
    }
    puts("All done.");
    return DONE;
  }
  puts("The following GPUs could not be reset:");
  for (int i = 0; i < chosen_count; i++) {
    if (gpu_holders(chosen[i])) printf("  GPU %s: In use by another client\n", chosen[i]->bus);
    else if (left_behind(chosen[i])) printf("  GPU %s: NVLink peers must be reset with it\n", chosen[i]->bus);
  }
  if (held) {
    printf("\n%d %s currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
           "graphics application such as an X server, or a monitoring application such as another instance of "
           "nvidia-smi). Please first kill all processes using %s and all compute applications running in the "
           "system.\n", held, held == 1 ? "device is" : "devices are", held == 1 ? "this device" : "these devices");
  }
  return FAILED;
}

static const char *slices[] = {"Default", "Short", "Medium", "Long"};

static int set_timeslice(long timeslice) {
  for (int i = 0; i < chosen_count; i++) {
    if (chosen[i]->mig) {
      printf("Failed to set timeslice policy with value %s for GPU %lld : Not Supported\n", slices[timeslice], chosen[i]->index);
      return FAILED;
    }
    chosen[i]->timeslice = timeslice;
    state_changed();
    printf("Successfully set timeslice policy with value %s for GPU %lld\n", slices[timeslice], chosen[i]->index);
  }
  return DONE;
}

static int list_policies(void) {
  puts("+-------------------------------------+");
  puts("| GPU compute policies:               |");
  puts("| GPU     Name           Value        |");
  puts("|=====================================|");
  for (int i = 0; i < chosen_count; i++) {
    printf("| %3lld     %-14s %-12s |\n", chosen[i]->index, "Timeslice", slices[chosen[i]->timeslice & 3]);
  }
  puts("+-------------------------------------+");
  return DONE;
}

static int list_gpus(void) {
  for (int i = 0; i < chosen_count; i++) {
    const gpu *g = chosen[i];
    printf("GPU %lld: %s (UUID: %s)\n", g->index, g->name, g->uuid);
    EACH(compute, c) {
      if (c->gpu != g->index) continue;
      const profile *p = profile_of(instance_at(g, c->instance));
      printf("  MIG %-8s Device %2lld: (UUID: %s)\n", p->name, c->index, c->uuid);
    }
  }
  return DONE;
}

static int unusable(int code) {
  switch (code) {
  case NVML_ERROR_DRIVER_NOT_LOADED:
    puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
         "Make sure that the latest NVIDIA driver is installed and running.\n");
    break;
  default:
    printf("Failed to initialize NVML: %s\n", nvmlErrorString(code));
  }
  return code;
}

/* What to do. */
static int reset, list, policy, policies;
static long timeslice = -1;
static char *gpus;

static int run(void) {
  int code = choose(gpus);
  if (code) return code;
  if (list) return list_gpus();
  if (policies) return list_policies();
  if (!the_machine()->root) {
    puts("Insufficient Permissions");
    return NO_PERMISSION;
  }
  return reset ? reset_chosen() : set_timeslice(timeslice);
}

static int usage(void) {
  fputs("usage: nvidia-smi -L | --gpu-reset [-i GPU,...] | compute-policy [-i GPU,...] -l | --set-timeslice 0..3\n",
        stderr);
  return BAD_ARGUMENT;
}

static int parse(int argc, char **argv) {
  static const struct option options[] = {
      {"list-gpus", no_argument, NULL, 'L'},  {"gpu-reset", no_argument, NULL, 'r'},
      {"id", required_argument, NULL, 'i'},   {"list", no_argument, NULL, 'l'},
      {"set-timeslice", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "Lri:l", options, NULL)) != -1;) {
    char *rest = "";
    switch (option) {
    case 'L': list = 1; break;
    case 'r': reset = 1; break;
    case 'l': policies = 1; break;
    case 'i': gpus = optarg; break;
    case 's': timeslice = strtol(optarg, &rest, 10); break;
    default: return -1;
    }
    if (*rest || timeslice > 3) return -1;
  }
  policy = optind < argc && !strcmp(argv[optind], "compute-policy");
  if (optind + policy != argc || list + reset + policies + (timeslice >= 0) != 1) return -1;
  return policy == (policies || timeslice >= 0) ? 0 : -1;
}

int main(int argc, char **argv) {
  if (parse(argc, argv)) return usage();
  int code = begin_uninitialized("nvidia-smi");
  if (!code && (code = the_machine()->init_error)) code = unusable(code);
  if (!code) code = run();
  return end(code);
}
