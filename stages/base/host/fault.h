// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_FAULT_H
#define PENSTOCK_STAGES_BASE_HOST_FAULT_H
/*
 * Faults on purpose, for tests: PENSTOCK_FAULT in the environment names a point
 * of the program, how often it is to be passed, and what happens then
 * (stages/base/README.md). Any thread. Without it a point costs one load.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Once, before other threads; what is no fault of that form is none. */
void pst_fault_read(void);
bool pst_fault_is_set(void);
/* The program is at the point of that name. */
void pst_fault_point(const char *name);
/* A step begins, the first one is 0: point "step@N" is the begin of the N-th,
 * in each process anew. */
void pst_fault_step(uint64_t step);
/* The same of data that is at that point; action "flip": one bit of it. */
void pst_fault_data(const char *name, void *data, size_t size);

#endif
