// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COST_COST_H
#define PENSTOCK_STAGES_COST_COST_H
/*
 * What computing and sending cost in seconds: the one answer for the splitter,
 * the simulator, `plan`, schedule auto and the placement of stages. A node
 * takes its operations and the bytes that it touches at the rates of a machine
 * (stages/ops/matmul/rates.h). Pure functions; any thread.
 */
#include "stages/ops/core/op.h"
#include "stages/ops/matmul/rates.h"

/* A training step takes a forward pass three times: once as it is, twice for
 * gradients of inputs and of parameters. For whoever has no joint graph. */
#define PST_COST_STEP 3.0
/* What a node touches is in its core's cache if it is less than this, and comes
 * so many times as fast then as from memory. */
#define PST_COST_CACHE      (512.0 * 1024)
#define PST_COST_CACHE_RATE 8.0

/* On what a node runs. */
struct pst_cost_setup {
    const struct pst_rates *rates; /* NULL: pst_rates_reference */
    unsigned threads;              /* of a rank; 0 is 1 */
    bool bf16;                     /* --dtype bf16 */
};

/* Does a kernel run for it (or is it a view, which costs nothing)? */
bool pst_node_is_work(const struct pst_node *node);
/* Seconds of one run of a node. */
double pst_cost_of_node(const struct pst_cost_setup *setup,
                        struct pst_node *node);
/* Seconds to read or write so many bytes of memory. */
double pst_cost_of_memory(const struct pst_cost_setup *setup, double bytes);
/* Seconds of a message between ranks without its latency. */
double pst_cost_of_wire(const struct pst_cost_setup *setup, double bytes);

#endif
