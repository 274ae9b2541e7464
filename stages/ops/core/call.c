// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/call.h"

/* Records the fault, unless one was recorded before. Kernel threads may report
 * at the same moment: the exchange lets only one of them write. */
void pst_call_fault_set(const struct pst_call *c, enum pst_fault_code code,
                        const union pst_fault_number *numbers)
{
    uint32_t unset = 0;

    if (c->fault == NULL ||
        !__atomic_compare_exchange_n(&c->fault->set, &unset, 1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    c->fault->code = code;
    c->fault->site = c->site;
    c->fault->microbatch = c->rng.microbatch;
    for (int i = 0; i < PST_FAULT_NUMBERS; i++)
        c->fault->numbers[i] = numbers[i];
}

unsigned pst_call_count_arg(const struct pst_schema *schema, unsigned i,
                            const struct pst_arg *arg)
{
    switch (schema->args[i].type) {
    case PST_TYPE_TENSOR:
        return 1;
    case PST_TYPE_TENSORS:
    case PST_TYPE_OPTIONAL_TENSORS:
        return arg->kind == PST_ARG_VALUES ? arg->n : 0;
    default:
        return 0;
    }
}

unsigned pst_call_count_in(const struct pst_schema *schema,
                           const struct pst_arg *args)
{
    unsigned n = 0;

    for (unsigned i = 0; i < schema->n_args; i++)
        n += pst_call_count_arg(schema, i, &args[i]);
    return n;
}

void pst_call_bind_metas(const struct pst_schema *schema,
                         const struct pst_arg *args, struct pst_operand *in)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        const unsigned n = pst_call_count_arg(schema, i, &args[i]);

        for (unsigned k = 0; k < n; k++) {
            const struct pst_value *value = NULL;

            if (args[i].kind == PST_ARG_VALUE)
                value = args[i].value;
            else if (args[i].kind == PST_ARG_VALUES)
                value = args[i].values[k];
            *in = (struct pst_operand){
                .meta = value != NULL ? &value->meta : &pst_meta_absent};
            in++;
        }
    }
}
