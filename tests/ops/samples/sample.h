// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_OPS_SAMPLES_SAMPLE_H
#define PENSTOCK_TESTS_OPS_SAMPLES_SAMPLE_H
/*
 * Samples of operators: graph texts (stages/graph/README.md) of one line each,
 * in the .def files of this folder (functions of one tensor are in
 * functions.def). Statements are separated by ";"; the last node is the
 * operator under test, and nodes before it prepare its inputs, for example with
 * strides.
 *
 *     SAMPLE("input %x: F[2, 3]; %r = aten.exp.default(%x)")
 *
 * F stands for the floating dtype under test: f64 for gradients; f32 and bf16
 * too for kernels. The name of an input determines its values:
 *     %p...  positive, 0.2..2         %u...  between -0.9 and 0.9
 *     %d...  all different, shuffled  %s...  NaN, infinities, -0 among others
 *     %i7... integers 0..6            %n...  normally distributed, the default
 *     %c...  as %p, without a gradient
 * Integers of other names are -5..5, those of %p... 1..5.
 *
 *     SAMPLE        kernels and gradients
 *     KERNELS_ONLY  no finite differences: the function is not smooth there
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

/* Parses the sample with F replaced by dtype; free with pst_graph_free. */
enum pst_status sample_parse(const struct sample *sample, enum pst_dtype dtype,
                             struct pst_graph **ret, struct pst_diag *diag);
/* Returns the operator under test. */
struct pst_node *sample_node(const struct pst_graph *graph);

/* Allocates the elements of a given value, with its meta's strides, filled
 * according to its name; the same in every call. Free with pst_free. */
void *sample_fill(const struct pst_value *value);
/* Replaces bytes of a bool that are true by other non-zero bytes, as files may
 * have them; always the same ones. Other dtypes are unchanged. */
void sample_other_bytes(const struct pst_meta *meta, void *data);

#endif
