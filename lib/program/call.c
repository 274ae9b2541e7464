// SPDX-License-Identifier: Apache-2.0
/* Calls of programs with operands of the caller. */
#include <limits.h>
#include <string.h>

#include "lib/program/program.h"

/* Checks operand number k of the caller's list, and records k for each operand
 * of the program that has its name. */
static enum pst_status bind_operand(penstock_program *p,
                                    const struct penstock_operand *given,
                                    unsigned k, struct pst_diag *diag)
{
    const struct pst_alias_text *text = p->text;
    unsigned first;
    enum pst_status status = pstl_program_operand(p, given->name, &first, diag);

    if (status != PST_OK)
        return status;
    if (p->numbers[first] != UINT_MAX)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "operand '%.200s' is given twice", given->name);
    for (unsigned i = first; i < text->n_operands; i++)
        if (strcmp(text->operands[i].as.name, given->name) == 0)
            p->numbers[i] = k;
    return pstl_operand_view(given->name, text->dtypes[first], given->tensor,
                             &p->views[k], diag);
}

/* If an earlier operand of the caller's list has the same DLTensor pointer,
 * makes operand k the same tensor, with the same storage and offset. */
static enum pst_status merge_same_tensors(penstock_program *p,
                                          const struct penstock_operand *given,
                                          unsigned k, struct pst_diag *diag)
{
    unsigned first = 0;

    while (given[first].tensor != given[k].tensor)
        first++;
    if (p->views[first].meta.dtype != p->views[k].meta.dtype)
        return pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                            "'%.200s' and '%.200s' are one tensor, and the "
                            "program gives them two dtypes",
                            given[first].name, given[k].name);
    p->placed[k] = p->placed[first];
    p->placed[k].tensor = first;
    p->read_only[first] |= p->read_only[k];
    return PST_OK;
}

/* Sets operand i of the program. If its tensor has several names, the gradient
 * belongs to the first of them. */
static enum pst_status set_operand(penstock_program *p, unsigned i,
                                   struct pst_diag *diag)
{
    struct pst_alias_program_operand *o = &p->operands[i];
    unsigned first = 0;

    *o = p->text->operands[i];
    if (o->from_before)
        return PST_OK;
    if (p->numbers[i] == UINT_MAX)
        return pst_diag_set(diag, PST_E_ALIAS_CALL,
                            "operand \"%.200s\" is missing", o->as.name);
    o->as.tensor = p->placed[p->numbers[i]].tensor;
    o->as.storage = p->placed[p->numbers[i]].storage;
    o->as.offset = p->placed[p->numbers[i]].offset;
    o->as.meta = p->views[p->numbers[i]].meta;
    o->read_only = p->read_only[o->as.tensor];
    while (p->operands[first].from_before ||
           p->operands[first].as.tensor != o->as.tensor)
        first++;
    if ((p->operands[first].leaf == NULL) != (o->leaf == NULL))
        return pst_diag_set(diag, PST_E_ALIAS_CALL,
                            "\"%.200s\" and \"%.200s\" are one tensor, and "
                            "only one of them requires a gradient",
                            p->operands[first].as.name, o->as.name);
    o->leaf = p->operands[first].leaf;
    return PST_OK;
}

/* Sets the operands of the program from the caller's list, and finds their
 * storages. flags: NULL, or one for each operand. */
static enum pst_status bind_operands(penstock_program *p,
                                     const struct penstock_operand *given,
                                     const uint64_t *flags, size_t n,
                                     unsigned *ret_storages,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (given == NULL && n > 0)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "operands is NULL, and n_operands is not 0");
    for (unsigned i = 0; i < p->text->n_operands; i++)
        p->numbers[i] = UINT_MAX;
    for (size_t k = 0; k < n && status == PST_OK; k++) {
        status = bind_operand(p, &given[k], (unsigned)k, diag);
        if (status == PST_OK) /* so k < p->text->n_operands */
            p->read_only[k] =
                flags != NULL && (flags[k] & PENSTOCK_READ_ONLY) != 0;
    }
    if (status == PST_OK)
        status = pstl_storages_find(given, p->views, n, p->placed, p->storages,
                                    ret_storages, diag);
    for (size_t k = 0; k < n && status == PST_OK; k++)
        status = merge_same_tensors(p, given, (unsigned)k, diag);
    for (unsigned i = 0; i < p->text->n_operands && status == PST_OK; i++)
        status = set_operand(p, i, diag);
    return status;
}

static void fill_info(const penstock_program *p, struct penstock_call_info *ret)
{
    const struct pst_alias *alias = &p->result.bound->alias;
    const struct penstock_call_info info = {
        .size = sizeof(info),
        .results = p->result.bound->n_returns,
        .copied = p->result.copied,
        .passed = alias->bytes,
        .bases = alias->n_bases,
        .plans = pst_caller_plans(p->caller),
        .is_new = p->result.is_new,
        .in_place = p->result.in_place};

    if (ret != NULL)
        pstl_write_struct(&info, ret, sizeof(info));
}

int penstock_call(penstock_program *program,
                  const struct penstock_operand *operands, size_t n_operands,
                  struct penstock_call_info *ret, struct penstock_error *error)
{
    return penstock_call_flags(program, operands, NULL, n_operands, ret, error);
}

int penstock_call_flags(penstock_program *program,
                        const struct penstock_operand *operands,
                        const uint64_t *flags, size_t n_operands,
                        struct penstock_call_info *ret,
                        struct penstock_error *error)
{
    unsigned n_storages;
    struct pst_diag diag;
    enum pst_status status = pstl_program_acquire(program, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    program->called = false;
    pstl_results_free(program);
    if (ret != NULL)
        status = pstl_check_struct("ret", ret, &diag);
    if (status == PST_OK)
        status = bind_operands(program, operands, flags, n_operands,
                               &n_storages, &diag);
    if (status == PST_OK)
        status = pst_caller_call(program->caller, program->operands,
                                 program->text->n_operands, program->storages,
                                 n_storages, &program->result, &diag);
    if (status == PST_OK) {
        program->called = true;
        fill_info(program, ret);
    }
    return pstl_program_release(program, status, &diag, error);
}
