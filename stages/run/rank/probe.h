// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_PROBE_H
#define PENSTOCK_STAGES_RUN_RANK_PROBE_H
/*
 * Observers of a step: the marks of actions (trace, bubble), the flight
 * recorder, what other threads and processes see of the rank, and the seconds
 * that it waited. The executor calls these functions around its work; no result
 * depends on them.
 */
#include "stages/base/status.h"

struct pst_rank;
struct pst_rank_action;

/* Returns pst_now(). Between an action and the next one it reads the clock once
 * only: the end of one is the beginning of the other, unless the rank waits. */
double pst_probe_now(struct pst_rank *r);
/* Called before and after each part of the next action. An action that waits
 * (PST_AGAIN) has several parts: its mark begins with the first part and ends
 * with the last. The marks of compute actions come from their timings at the
 * end of the step (conclude.c). */
void pst_probe_begin_action(struct pst_rank *r,
                            const struct pst_rank_action *x);
void pst_probe_end_action(struct pst_rank *r, const struct pst_rank_action *x,
                          enum pst_status status);
/* Called before and after each part of a phase that follows the last action. */
void pst_probe_begin_phase(struct pst_rank *r);
void pst_probe_end_phase(struct pst_rank *r, enum pst_status status);
/* Begins to count seconds of waiting if status is PST_AGAIN, and ends it at any
 * other status. */
void pst_probe_wait(struct pst_rank *r, enum pst_status status);

#endif
