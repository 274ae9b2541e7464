// SPDX-License-Identifier: Apache-2.0
#include "stages/base/fold/fold.h"

#include <string.h>

void pst_folded_fini(struct pst_folded *folded)
{
    pst_str_fini(&folded->lines);
    pst_vec_fini(&folded->runs);
    pst_vec_fini(&folded->deltas);
}

/* Verifies that unfolding gives back the same message, since a model may have
 * any names and numbers. */
static enum pst_status check_fold(const struct pst_folded *folded,
                                  const void *data, size_t size,
                                  struct pst_diag *diag)
{
    struct pst_str again = {0};
    enum pst_status status = pst_unfold(folded, &again, diag);

    if (status == PST_ERR_INPUT ||
        (status == PST_OK &&
         (again.len != size || memcmp(again.text, data, size) != 0)))
        status = pst_diag_set(diag, PST_E_RECORD_UNFIT,
                              "the message does not come back as it was");
    pst_str_fini(&again);
    return status;
}

enum pst_status pst_fold(const ProtobufCMessageDescriptor *descriptor,
                         const void *data, size_t size, struct pst_folded *ret,
                         struct pst_diag *diag)
{
    struct pst_str lines = {0};
    enum pst_status status =
        pst_message_lines(descriptor, data, size, &lines, diag);

    if (status == PST_OK)
        status = pst_fold_lines(pst_str_text(&lines), lines.len, ret, diag);
    if (status == PST_OK)
        status = check_fold(ret, data, size, diag);
    pst_str_fini(&lines);
    return status;
}

enum pst_status pst_unfold(const struct pst_folded *folded, struct pst_str *ret,
                           struct pst_diag *diag)
{
    struct pst_str lines = {0};
    enum pst_status status = pst_unfold_lines(
        folded, pst_fold_limit(folded->lines.len), &lines, diag);

    if (status == PST_OK)
        status = pst_message_pack(&lines, ret, diag);
    pst_str_fini(&lines);
    return status;
}
