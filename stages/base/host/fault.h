// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_FAULT_H
#define PENSTOCK_STAGES_BASE_HOST_FAULT_H
/*
 * Fault injection for tests: PENSTOCK_FAULT in the environment names a point of
 * the program, the action, and the number N: the action happens when the
 * program passes the point for the N-th time (stages/base/README.md). Any
 * thread. If the variable is not set, a point costs one load.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the environment; call once, before other threads start. A malformed
 * value is ignored. */
void pst_fault_read(void);
bool pst_fault_is_set(void);
/* Marks that the program passes the named point: its fault may happen here. */
void pst_fault_point(const char *name);
/* Marks the beginning of a step, counted from 0: point "step@N" is the
 * beginning of the N-th step. Each process counts its own steps. */
void pst_fault_step(uint64_t step);
/* With PENSTOCK_GATE=FILE rank 0 waits before the N-th step, and before it
 * takes the requests that this step executes, as long as the number in FILE is
 * less than N. step: N - 1. */
void pst_fault_gate(uint64_t step);
/* Marks a point that has data; the action "flip" inverts one bit of it. */
void pst_fault_data(const char *name, void *data, size_t size);

#endif
