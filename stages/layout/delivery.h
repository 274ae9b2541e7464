// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_DELIVERY_H
#define PENSTOCK_STAGES_LAYOUT_DELIVERY_H
/*
 * Inputs that rank 0 sends to another rank before each step (options.scatter):
 * those that the rank's stages read, by microbatch, in an order that both ranks
 * compute. Pure functions; any thread.
 */
#include "stages/layout/role.h"

/* One input of one microbatch of the step: `bytes` bytes at offset `at` of the
 * data that the rank receives. */
struct pst_delivery {
    unsigned microbatch, input;
    size_t at, bytes;
};

/* Visits one piece. Any status but PST_OK ends the visit, and
 * pst_delivery_visit returns that status. */
typedef enum pst_status (*pst_delivery_fn)(void *ctx,
                                           const struct pst_delivery *piece);
/* Calls fn for all pieces that the rank with this role receives. */
enum pst_status pst_delivery_visit(const struct pst_rank_role *role,
                                   pst_delivery_fn fn,
                                   void *ctx) PST_MUST_CHECK;
/* Returns the bytes of all pieces; 0 for rank 0 of the job, and without
 * options.scatter. */
size_t pst_delivery_size(const struct pst_rank_role *role);
/* Returns the bytes of one input of a microbatch of the step. */
size_t pst_delivery_input_bytes(const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                unsigned microbatch, unsigned input);

#endif
