// SPDX-License-Identifier: Apache-2.0
/* Read-only views of tensors in a session's own memory. */
#include "lib/guest.h"
#include "stages/run/state/values.h"

static const char *const kinds[PSTL_N_KINDS] = {"inputs", "outputs",
                                                "parameters", "buffers"};

/* Finds a tensor and its memory. *ret_data: the tensor's address in that
 * memory. */
static enum pst_status find_memory(const penstock_session *s,
                                   enum penstock_kind kind, size_t index,
                                   const struct pstl_tensor **ret,
                                   const void **ret_data,
                                   struct pst_device_memory **ret_memory,
                                   struct pst_diag *diag)
{
    const bool is_output = kind == PENSTOCK_OUTPUT;
    const size_t n = penstock_session_count(s, kind);

    if (!is_output && kind != PENSTOCK_PARAMETER && kind != PENSTOCK_BUFFER)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "parameters, buffers and outputs can be viewed, "
                            "and no other kind of tensor");
    if (index >= n)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "there are %zu %s, and no number %zu", n,
                            kinds[kind], index);
    *ret = is_output ? &s->outputs[index] : &pstl_state_of(s, kind)->at[index];
    if (is_output && pstl_forward_engine(s) == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "there are no outputs: call penstock_forward "
                            "before");
    *ret_data = is_output
                    ? pst_engine_output_value(pstl_forward_engine(s),
                                              (*ret)->index, ret_memory)
                    : pst_engine_value(s->engine, (*ret)->index, ret_memory);
    if (*ret_data != NULL && (*ret_memory)->device->space != PST_SPACE_HOST &&
        (*ret_memory)->device->guest == NULL)
        *ret_data = NULL; /* only its device can use the address */
    return *ret_data != NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_LIBRARY_ELSEWHERE,
                              "'%.200s' is not in the memory of this process, "
                              "whole and in one piece: copy it with "
                              "penstock_%s",
                              (*ret)->name, is_output ? "output" : "get");
}

int penstock_view(penstock_session *session, enum penstock_kind kind,
                  size_t index, DLTensor *ret, struct penstock_error *error)
{
    const struct pstl_tensor *tensor = NULL;
    struct pst_device_memory *mem = NULL;
    const void *data = NULL;
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status =
        ret == NULL
            ? pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "ret is NULL")
            : find_memory(session, kind, index, &tensor, &data, &mem, &diag);
    if (status == PST_OK) {
        session->viewed |= mem->device->guest != NULL;
        *ret = (DLTensor){.data = (void *)data,
                          .device = {.device_type = kDLCPU},
                          .ndim = pstl_ndim(tensor),
                          .dtype = pstl_dtype(tensor),
                          .shape = (int64_t *)tensor->meta.size};
        if (mem->device->guest != NULL)
            ret->device = (DLDevice){kDLCUDA, (int)mem->ordinal};
    }
    return pstl_session_release(session, status, &diag, error);
}
