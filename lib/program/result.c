// SPDX-License-Identifier: Apache-2.0
/* Results of a call of a program: tensors, operands, gradients. */
#include <string.h>

#include "lib/program/program.h"
#include "stages/base/alloc.h"
#include "stages/base/checked.h"

#define TAG PST_TAG_CLIENT

void pstl_results_free(penstock_program *p)
{
    for (unsigned i = 0; i < p->text->program.n_returns; i++) {
        pst_free(p->returns[i].copy);
        p->returns[i].copy = NULL;
    }
}

/* Acquires the program, whose last call must have succeeded. */
static enum pst_status acquire_with_results(penstock_program *p,
                                            const void *ret,
                                            struct pst_diag *diag)
{
    enum pst_status status = pstl_program_acquire(p, diag);

    if (status != PST_OK)
        return status;
    status = pstl_check_struct("ret", ret, diag);
    if (status == PST_OK && !p->called)
        status = pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                              "the program was not called, or its last call "
                              "has failed");
    if (status != PST_OK) {
        pstl_receive_log(NULL);
        pstl_release(&p->busy);
    }
    return status;
}

/* Describes a tensor at an offset, in elements, of the memory at `data`. */
static struct penstock_tensor describe_tensor(const struct pst_meta *meta,
                                              void *data, int64_t offset,
                                              struct pstl_given *given)
{
    const struct pstl_tensor as = {.meta = *meta};

    memcpy(given->shape, meta->size, sizeof(given->shape));
    memcpy(given->strides, meta->stride, sizeof(given->strides));
    return (struct penstock_tensor){
        .size = sizeof(struct penstock_tensor),
        .tensor = {.data = data,
                   .device = {.device_type = kDLCPU},
                   .ndim = (int32_t)meta->rank,
                   .dtype = pstl_dtype(&as),
                   .shape = given->shape,
                   .strides = given->strides,
                   .byte_offset =
                       (uint64_t)offset * pst_dtype_size(meta->dtype)},
        .operand = -1};
}

/* Describes a tensor in a storage of the caller. False: it is in none. */
static bool describe_view(const penstock_program *p,
                          const struct pst_alias_program_place *place,
                          struct pstl_given *given, struct penstock_tensor *ret)
{
    const struct pst_alias_program_bound *bound = p->result.bound;
    unsigned i;

    if (place->operand < 0 ||
        pst_alias_program_is_new(bound, (unsigned)place->operand))
        return false;
    i = (unsigned)place->operand;
    *ret = describe_tensor(&place->meta,
                           p->storages[bound->operands[i].as.storage].data,
                           place->offset, given);
    /* An operand that an operator of `before` makes is a view of another
     * operand, its root. */
    if (p->operands[i].from_before)
        i = bound->operands[i].as.root;
    ret->operand = (int32_t)p->numbers[i];
    return true;
}

/* Describes a new result with its strides and offset in eager mode. Uses the
 * program's memory if the result has that layout there, else a copy. */
static enum pst_status describe_new(const penstock_program *p, unsigned index,
                                    const struct pst_alias_program_place *place,
                                    struct penstock_tensor *ret,
                                    struct pst_diag *diag)
{
    const size_t item = pst_dtype_size(place->meta.dtype);
    const size_t bytes = pst_size_add(pst_size_mul((size_t)place->offset, item),
                                      pst_meta_span(&place->meta));
    struct pstl_given *given = &p->returns[index];
    struct pst_meta from = place->meta;

    if (place->offset == 0 && pst_meta_is_contiguous(&place->meta)) {
        *ret =
            describe_tensor(&place->meta, p->result.returns[index], 0, given);
        return PST_OK;
    }
    if (given->copy == NULL)
        given->copy = pst_calloc(TAG, 1, pst_size_add(bytes, 1));
    if (given->copy == NULL)
        return pst_diag_nomem(diag, bytes);
    pst_meta_set_contiguous(&from);
    *ret = describe_tensor(&place->meta, given->copy, place->offset, given);
    pst_copy_strided(&from, p->result.returns[index], &place->meta,
                     (char *)given->copy + ret->tensor.byte_offset);
    return PST_OK;
}

int penstock_result(penstock_program *program, size_t index,
                    struct penstock_tensor *ret, struct penstock_error *error)
{
    const struct pst_alias_program_place *place;
    struct penstock_tensor tensor;
    struct pst_diag diag;
    enum pst_status status = acquire_with_results(program, ret, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (index >= program->text->program.n_returns) {
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                              "the program has %u results, and no number %zu",
                              program->text->program.n_returns, index);
        return pstl_program_release(program, status, &diag, error);
    }
    place = &program->result.bound->returns[index];
    if (!describe_view(program, place, &program->returns[index], &tensor))
        status = describe_new(program, (unsigned)index, place, &tensor, &diag);
    if (status == PST_OK)
        pstl_write_struct(&tensor, ret, sizeof(tensor));
    return pstl_program_release(program, status, &diag, error);
}

int penstock_result_operand(penstock_program *program, const char *name,
                            struct penstock_tensor *ret,
                            struct penstock_error *error)
{
    struct penstock_tensor tensor;
    struct pst_diag diag;
    enum pst_status status = acquire_with_results(program, ret, &diag);
    unsigned i;

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = pstl_program_operand(program, name, &i, &diag);
    if (status == PST_OK) {
        const struct pst_alias_program_place *place =
            &program->result.bound->after[i];

        if (!describe_view(program, place, &program->after[i], &tensor))
            tensor = describe_tensor(&place->meta, NULL, place->offset,
                                     &program->after[i]);
        tensor.moved = program->result.bound->moved[i];
        pstl_write_struct(&tensor, ret, sizeof(tensor));
    }
    return pstl_program_release(program, status, &diag, error);
}

/* Finds a leaf and its gradient, which is contiguous. */
static enum pst_status find_gradient(const penstock_program *p,
                                     const char *name, unsigned *ret,
                                     const void **ret_data,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    if (!p->options.train)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "the program computes no gradients: its text has "
                            "no \"backward\": true");
    status = pstl_program_operand(p, name, ret, diag);
    if (status != PST_OK)
        return status;
    *ret_data = p->operands[*ret].leaf == NULL
                    ? NULL
                    : pst_caller_grad(p->caller, p->operands[*ret].leaf, false);
    return *ret_data != NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_LIBRARY_NAME, "'%.200s' %s", name,
                              p->operands[*ret].leaf == NULL
                                  ? "requires no gradient"
                                  : "has no gradient: the loss does not "
                                    "depend on it");
}

int penstock_result_gradient(penstock_program *program, const char *name,
                             struct penstock_tensor *ret,
                             struct penstock_error *error)
{
    const void *data = NULL;
    struct pst_diag diag;
    enum pst_status status = acquire_with_results(program, ret, &diag);
    unsigned i;

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = find_gradient(program, name, &i, &data, &diag);
    if (status == PST_OK) {
        struct pst_meta meta = program->operands[i].as.meta;
        struct penstock_tensor tensor;

        pst_meta_set_contiguous(&meta);
        tensor = describe_tensor(&meta, (void *)data, 0, &program->grads[i]);
        pstl_write_struct(&tensor, ret, sizeof(tensor));
    }
    return pstl_program_release(program, status, &diag, error);
}
