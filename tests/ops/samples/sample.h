// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_OPS_SAMPLES_SAMPLE_H
#define PENSTOCK_TESTS_OPS_SAMPLES_SAMPLE_H
/*
 * Samples of operators: graph texts (stages/graph/README.md) of one line each
 * in the .def files beside this one (functions of one tensor are in
 * functions.def), lines divided by ";", whose last node is the operator under
 * test; nodes before it make its inputs strided, say.
 *
 *     SAMPLE("input %x: F[2, 3]; %r = aten.exp.default(%x)")
 *
 * F stands for the floating dtype under test: f64 for gradients, and f32 and
 * bf16 too for kernels. How an input is filled follows from its name:
 *     %p...  positive, 0.2..2         %u...  between -0.9 and 0.9
 *     %d...  all different, shuffled  %s...  NaN, infinities, -0 among others
 *     %i7... integers 0..6            %n...  normal numbers, the rest too
 *     %c...  as %p, and no gradient is asked for
 * Integers of other names are -5..5, without 0 for %p.
 *
 * SAMPLE       kernels and gradients
 * KERNELS_ONLY no finite differences: the function is not smooth there
 */
#include "tests/test.h"

#include "stages/ops/core/call.h"

enum sample_flags { SAMPLE_NO_GRADIENT = 1 };

struct sample {
    const char *text;
    unsigned flags;
};

unsigned sample_count(void);
const struct sample *sample_at(unsigned i);

/* With F replaced by dtype; free with pst_graph_free. */
enum pst_status sample_parse(const struct sample *sample, enum pst_dtype dtype,
                             struct pst_graph **ret, struct pst_diag *diag);
/* The operator under test. */
struct pst_node *sample_node(const struct pst_graph *graph);

/* Elements of a given value as its meta's strides say, filled by its name; the
 * same in every call. pst_free it. */
void *sample_fill(const struct pst_value *value);
/* Bytes of a bool that are true become others that are, as files have them;
 * always the same ones. Other dtypes stay. */
void sample_other_bytes(const struct pst_meta *meta, void *data);

#endif
