/*
 * state.h: the machine in its file, which several processes share.
 */
#ifndef NVMLTEST_STATE_H
#define NVMLTEST_STATE_H

#include "records.h"

/* The file is named by this variable of the environment. Beside it lie its lock and
 * the log of calls, under the same name with .lock and .calls. */
#define STATE_VARIABLE "NVMLTEST_STATE"

/* state_open takes the machine's lock and reads the machine into the tables; 0 on
 * success, when state_close must follow. It is not for two threads at once. */
int state_open(void);
/* state_close writes the machine if it changed, and lets go of the lock. */
int state_close(void);
/* state_changed says that there is something to write. */
void state_changed(void);
/* state_log appends a call to the log of calls. */
void state_log(const char *function, int code);

/* the_machine is the only record of its kind. */
machine *the_machine(void);

#endif
