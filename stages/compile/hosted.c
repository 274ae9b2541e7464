// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/hosted.h"

#include <string.h>

#include "stages/ops/core/op.h"

#define MIB (1024.0 * 1024.0)

bool pst_hosted_is(const struct pst_program *program,
                   const struct pst_exec_node *x)
{
    return program->options.device->fallback != NULL &&
           !x->computed_elsewhere && (x->kernel->flags & PST_K_QUEUED) == 0;
}

/* Returns the bytes that a call copies. Results are copied in both directions:
 * a kernel may add to them, or leave the gaps of a strided one as they are. */
static uint64_t copied_bytes(const struct pst_call *call)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < call->n_in; i++)
        if (call->in[i].meta != NULL)
            bytes += pst_meta_span(call->in[i].meta);
    for (unsigned i = 0; i < call->n_out; i++)
        if (call->out[i].meta != NULL)
            bytes += 2 * pst_meta_span(call->out[i].meta);
    return bytes;
}

static struct pst_hosted *find_row(struct pst_hosted_list *list, const char *op)
{
    for (size_t i = 0; i < list->all.n; i++)
        if (strcmp(list->all.at[i].op, op) == 0)
            return &list->all.at[i];
    return NULL;
}

static bool add_call(struct pst_hosted_list *list,
                     const struct pst_exec_node *x)
{
    const char *op = pst_node_origin(x->node);
    struct pst_hosted *row = find_row(list, op);

    if (row == NULL) {
        const struct pst_hosted new = {op, x->node->source, 0, 0};

        if (!pst_vec_push(PST_TAG_EXEC, &list->all, new))
            return false;
        row = &list->all.at[list->all.n - 1];
    }
    row->calls++;
    row->bytes += copied_bytes(&x->call);
    return true;
}

enum pst_status pst_hosted_add(struct pst_hosted_list *list,
                               const struct pst_program *program,
                               struct pst_diag *diag)
{
    for (unsigned k = 0; k < PST_N_LISTS; k++)
        for (unsigned i = 0; i < program->lists[k].n; i++) {
            const struct pst_exec_node *x = &program->lists[k].at[i];

            if (pst_hosted_is(program, x) && !add_call(list, x))
                return pst_diag_nomem(diag, sizeof(struct pst_hosted));
        }
    return PST_OK;
}

bool pst_hosted_can_record(const struct pst_exec_node *x)
{
    const unsigned flags = x->kernel->flags;

    return (flags & PST_K_QUEUED) != 0 &&
           ((x->node->op->flags & PST_OP_RANDOM) == 0 ||
            (flags & PST_K_REPLAYS) != 0);
}

void pst_hosted_count(const struct pst_program *program, unsigned *ret_calls,
                      unsigned *ret_recorded)
{
    *ret_calls = *ret_recorded = 0;
    for (unsigned k = PST_LIST_F; k < PST_N_LISTS; k++)
        for (unsigned i = 0; i < program->lists[k].n; i++)
            *ret_recorded += pst_hosted_can_record(&program->lists[k].at[i]);
    for (unsigned k = PST_LIST_F; k < PST_N_LISTS; k++)
        *ret_calls += program->lists[k].n;
}

void pst_hosted_fini(struct pst_hosted_list *list)
{
    pst_vec_fini(&list->all);
}

unsigned pst_hosted_calls(const struct pst_hosted_list *list)
{
    unsigned calls = 0;

    for (size_t i = 0; i < list->all.n; i++)
        calls += list->all.at[i].calls;
    return calls;
}

uint64_t pst_hosted_bytes(const struct pst_hosted_list *list)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < list->all.n; i++)
        bytes += list->all.at[i].bytes;
    return bytes;
}

void pst_hosted_print(const struct pst_hosted_list *list, struct pst_str *out)
{
    for (size_t i = 0; i < list->all.n; i++) {
        const struct pst_hosted *row = &list->all.at[i];

        pst_str_addf(out, "%s%s (%u call%s, %.1f MiB copied%s%s)",
                     i > 0 ? ", " : "", row->op, row->calls,
                     row->calls == 1 ? "" : "s", (double)row->bytes / MIB,
                     *row->source != '\0' ? ", " : "", row->source);
    }
}
