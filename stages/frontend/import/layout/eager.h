// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_LAYOUT_EAGER_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_LAYOUT_EAGER_H
/*
 * Strides that PyTorch's tensors have when the model runs in eager mode. A file
 * records the strides of the tracer's tensors. Some of them differ: those of
 * dimensions of size 1, by which a later convolution chooses its memory format,
 * and, for a few operators (roll, batch_norm, 2 ** x), all of them. Results
 * therefore get the strides of eager mode (stages/frontend/functional/eager.h).
 * An operator without a rule there keeps the strides of the file. Exception: if
 * strides of an operand were corrected, those of a view of it are inferred
 * again. One thread.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

/* Returns the meta of v with eager strides; v is not a view. */
struct pst_meta pst_import_eager_meta(const struct pst_import *import,
                                      const struct pst_value *v);
/* Computes the expected strides of result i, `value`, before it gets its name.
 * args: arguments in the order of the row's schema. */
enum pst_status pst_import_expect_strides(
    struct pst_import *import, const struct pst_scope *scope,
    const struct pst_doc_node *node, const struct pst_op *op,
    const struct pst_arg *args, unsigned i,
    const struct pst_value *value) PST_MUST_CHECK;
/* Replaces the strides in *t, the file's meta of `value`, by eager strides,
 * before the value gets its name. Returns true if they differed. */
bool pst_import_correct_strides(struct pst_import *import,
                                const struct pst_value *value,
                                struct pst_doc_meta *t);
/* Records the strides of `value` after it has got its name. */
enum pst_status pst_import_keep_strides(struct pst_import *import,
                                        const struct pst_value *value,
                                        const struct pst_doc_meta *t,
                                        bool put_right) PST_MUST_CHECK;
/* True if to(), with the same dtype, or contiguous() returns v itself. */
bool pst_import_returns_itself(const struct pst_import *import,
                               const struct pst_doc_node *node,
                               const struct pst_value *v, bool contiguous);
/* True if the node requests the channels-last format. */
bool pst_import_wants_channels(const struct pst_doc_node *node);

#endif
