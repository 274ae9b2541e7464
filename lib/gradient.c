// SPDX-License-Identifier: Apache-2.0
/* Gradients of inputs. */
#include <stdio.h>

#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/base/alloc.h"

#define TAG PST_TAG_CLIENT

/* Checks the caller's tensor and sets *ret. *ret_at: memory for the gradient.
 * That is the caller's memory if it is contiguous and aligned host memory, and
 * all ranks are in this process; otherwise a new buffer, which is returned
 * owned in *ret_copy. */
static enum pst_status make_view(const penstock_session *s, size_t input,
                                 const DLTensor *dst, struct pstl_view *ret,
                                 void **ret_copy, void **ret_at,
                                 struct pst_diag *diag)
{
    const bool *wants = s->batch.plan->wants;
    const struct pst_meta *meta;
    enum pst_status status;

    if (input >= s->n_inputs)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "there are %zu inputs, and no number %zu",
                            s->n_inputs, input);
    if (wants == NULL || !wants[input])
        return pst_diag_set(diag, PST_E_LIBRARY_GRADIENT,
                            "the session keeps no gradient of '%.200s': name "
                            "it in \"input-gradients\"",
                            s->inputs[input].name);
    if (!s->has_grads)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "there is no gradient: the last step of training "
                            "has failed, or none was made");
    if (!pstl_is_first(s))
        return PST_OK;
    status = pstl_take(s, &s->inputs[input], dst, true, ret, diag);
    if (status != PST_OK)
        return status;
    meta = &s->inputs[input].meta;
    *ret_at = ret->data;
    if (s->transport->ops->one_process && ret->gpu < 0 &&
        pst_meta_is_contiguous(&ret->meta) &&
        (uintptr_t)ret->data % pst_dtype_size(meta->dtype) == 0)
        return PST_OK;
    *ret_at = *ret_copy = pst_alloc(TAG, pst_meta_bytes(meta));
    return *ret_copy != NULL ? PST_OK
                             : pst_diag_nomem(diag, pst_meta_bytes(meta));
}

int penstock_input_gradient(penstock_session *session, size_t input,
                            DLTensor *dst, struct penstock_error *error)
{
    struct pstl_view view = {0};
    void *copy = NULL, *at = NULL;
    char number[24];
    const struct pstl_collective call = {
        .name = "input_gradient", .what = number, .phase = PST_ALIVE_GATHER};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    (void)snprintf(number, sizeof(number), "%zu", input);
    status = pstl_call_settle(
        session, &call,
        make_view(session, input, dst, &view, &copy, &at, &diag), &diag);
    if (status == PST_OK) {
        status = pst_engine_fetch_input_grad(session->engine, (unsigned)input,
                                             at, &diag);
        if (status == PST_OK && copy != NULL)
            status = pstl_push(session, copy, &view, &diag);
        status = pst_transport_agree(session->transport, status, &diag);
    }
    if (status == PST_OK && at != NULL)
        atomic_fetch_add(&session->copies.written,
                         pst_meta_bytes(&session->inputs[input].meta));
    pst_free(copy);
    return pstl_session_release(session, status, &diag, error);
}
