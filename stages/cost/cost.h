// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COST_COST_H
#define PENSTOCK_STAGES_COST_COST_H
/*
 * Estimated seconds of computation and communication, for the splitter, the
 * simulator, `plan`, schedule auto and the placement of stages. The cost of a
 * node depends on its operations, the bytes it accesses, and the rates of a
 * machine (stages/ops/rates/rates.h). Pure functions; any thread.
 */
#include "stages/ops/core/op.h"
#include "stages/ops/rates/rates.h"

/* Cost of a training step in forward passes: one for the forward itself, and
 * one each for the gradients of inputs and of parameters. For callers that have
 * no joint graph. */
#define PST_COST_STEP 3.0
/* A node that accesses fewer bytes than this is assumed to find them in its
 * core's cache, which is PST_COST_CACHE_RATE times as fast as memory. */
#define PST_COST_CACHE      (512.0 * 1024)
#define PST_COST_CACHE_RATE 8.0

/* The machine that a node runs on. */
struct pst_cost_setup {
    const struct pst_rates *rates; /* NULL: pst_rates_reference */
    unsigned threads;              /* threads of a rank; 0 means 1 */
    bool bf16;                     /* --dtype bf16 */
};

/* True if a kernel runs for the node; false for a view, which costs nothing. */
bool pst_node_is_work(const struct pst_node *node);
/* Returns the seconds of one run of a node. */
double pst_cost_of_node(const struct pst_cost_setup *setup,
                        struct pst_node *node);
/* Returns the seconds to read or write that many bytes of memory. */
double pst_cost_of_memory(const struct pst_cost_setup *setup, double bytes);
/* Returns the seconds to send that many bytes to another rank, without the
 * latency. */
double pst_cost_of_wire(const struct pst_cost_setup *setup, double bytes);

#endif
