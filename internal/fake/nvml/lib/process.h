/*
 * process.h: what a process has of NVML: how often it is initialised, and its handles.
 *
 * go-nvml binds a function to the first library that has it and keeps the binding, even
 * when that library was closed and another was opened. So a process that has opened
 * several builds of this library calls into all of them. They share one record: its
 * symbol is exported, and the dynamic linker gives all of them the first.
 */
#ifndef NVMLTEST_PROCESS_H
#define NVMLTEST_PROCESS_H

#include <limits.h>
#include <pthread.h>

typedef struct handle handle;

typedef struct {
  pthread_mutex_t mutex;  /* one call at a time */
  char machine[PATH_MAX]; /* the machine that the rest is about */
  long long boot;         /* and which start of it */
  int inits;
  int session; /* changes with the last nvmlShutdown */
  handle *handles;
} process_state;

extern process_state fakenvml_process;

/* process_follow forgets the initialisation when the environment names another machine
 * or the machine was started again, since a process cannot have one there. */
void process_follow(void);

#endif
