// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_LAYOUT_EAGER_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_LAYOUT_EAGER_H
/*
 * The strides that PyTorch's tensors have when the model runs. A file says
 * those of the tracer's tensors, which for some operators are others: those of
 * dimensions of size 1, by which a later convolution decides where its channels
 * are, and all of a few operators (roll, batch_norm, 2 ** x). So results are
 * given the strides that eager mode gives them
 * (stages/frontend/functional/eager.h), and what follows from them; what has no
 * rule there, and has no operand whose strides were put right, is as the file
 * says. One thread.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

/* The meta of v, a value that stands for itself, with PyTorch's strides. */
struct pst_meta pst_import_eager_meta(const struct pst_import *import,
                                      const struct pst_value *v);
/* Before result i, `value`, of the node gets its name. args: of the row, in the
 * order of its schema. */
enum pst_status pst_import_expect(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const struct pst_doc_node *node,
                                  const struct pst_op *op,
                                  const struct pst_arg *args, unsigned i,
                                  const struct pst_value *value) PST_MUST_CHECK;
/* Before `value` gets the name of which the file says *t: strides become
 * PyTorch's. True: they were others. */
bool pst_import_put_right(struct pst_import *import,
                          const struct pst_value *value,
                          struct pst_doc_meta *t);
/* When it has it. */
enum pst_status pst_import_keep_strides(struct pst_import *import,
                                        const struct pst_value *value,
                                        const struct pst_doc_meta *t,
                                        bool put_right) PST_MUST_CHECK;
/* Does to(), without another dtype, or contiguous() return v itself? */
bool pst_import_returns_itself(const struct pst_import *import,
                               const struct pst_doc_node *node,
                               const struct pst_value *v, bool contiguous);
/* Is the node asked for channels last? */
bool pst_import_wants_channels(const struct pst_doc_node *node);

#endif
