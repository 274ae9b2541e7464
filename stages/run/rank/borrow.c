// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/borrow.h"

#include "stages/run/rank/step/traffic.h"

/* A part of the arena, and the memory that is read in its place. */
struct piece {
    unsigned char *base; /* of the arena */
    size_t offset, bytes;
    const void *from;
};

static bool has_loc(const struct piece *p, const struct pst_loc *at)
{
    return at->region == PST_R_FIXED && at->offset >= p->offset &&
           at->offset - p->offset < p->bytes;
}

static bool has_address(const struct piece *p, const void *address)
{
    const uintptr_t begin = (uintptr_t)p->base + p->offset;

    return (uintptr_t)address >= begin && (uintptr_t)address - begin < p->bytes;
}

/* True if a kernel of the program writes the piece. */
static bool is_written(const struct pst_program *program, const struct piece *p)
{
    for (int l = 0; program != NULL && l < PST_N_LISTS; l++)
        for (unsigned i = 0; i < program->lists[l].n; i++) {
            const struct pst_exec_node *n = &program->lists[l].at[i];

            for (unsigned k = 0; k < n->call.n_out; k++)
                if (has_loc(p, &n->out[k]))
                    return true;
        }
    return false;
}

/* True if a copy or a message of the action writes the piece or sends it. */
static bool is_passed(const struct pst_rank_action *x, const struct piece *p)
{
    for (unsigned i = 0; i < x->n_instrs; i++)
        if (has_address(p, x->instrs[i].to))
            return true;
    for (unsigned i = 0; i < x->n_messages; i++)
        if (has_address(p, x->messages[i].data))
            return true;
    return false;
}

/* Memory outside of the arena is addressed by an offset from `base`, too, since
 * offsets are added modulo 2^64 (run.c). */
static void redirect_program(struct pst_program *program, const struct piece *p)
{
    const size_t by = (uintptr_t)p->from - ((uintptr_t)p->base + p->offset);

    for (int l = 0; program != NULL && l < PST_N_LISTS; l++)
        for (unsigned i = 0; i < program->lists[l].n; i++) {
            struct pst_exec_node *n = &program->lists[l].at[i];

            for (unsigned k = 0; k < n->call.n_in; k++)
                if (has_loc(p, &n->in[k]))
                    n->in[k].offset += by;
        }
}

static void redirect_copies(struct pst_rank_action *x, const struct piece *p)
{
    for (unsigned i = 0; i < x->n_instrs; i++) {
        struct pst_instr *instr = &x->instrs[i];

        if (has_address(p, instr->from))
            instr->from =
                (const char *)p->from +
                ((const unsigned char *)instr->from - (p->base + p->offset));
    }
}

bool pst_rank_borrow(const struct pst_layout *layout, unsigned n_stages,
                     const struct pst_actions *actions, unsigned char *base,
                     size_t offset, size_t bytes, const void *from)
{
    const struct piece p = {base, offset, bytes, from};

    for (unsigned s = 0; s < n_stages; s++)
        if (is_written(layout->stages[s].program, &p) ||
            is_written(layout->stages[s].tail, &p))
            return false;
    for (unsigned i = 0; i < actions->n; i++)
        if (is_passed(&actions->at[i], &p))
            return false;
    for (unsigned s = 0; s < n_stages; s++) {
        redirect_program(layout->stages[s].program, &p);
        redirect_program(layout->stages[s].tail, &p);
    }
    for (unsigned i = 0; i < actions->n; i++)
        redirect_copies(&actions->at[i], &p);
    return true;
}
