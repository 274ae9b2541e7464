// SPDX-License-Identifier: Apache-2.0
/* Kernel tables of a plugin's operators. */
#include <stdio.h>

#include "stages/ops/cpu/upcast.h"
#include "stages/ops/plugin/check_rows.h"
#include "stages/ops/plugin/dtype.h"
#include "stages/ops/plugin/frame.h"
#include "stages/ops/plugin/guard.h"
#include "stages/ops/plugin/row.h"

static size_t scratch(const struct pst_call *c, unsigned threads)
{
    const size_t bytes = pst_plugin_frame_scratch(c);

    (void)threads;
    return bytes;
}

static void run(const struct pst_call *c)
{
    char why[PST_PLUGIN_FAULT_TEXT] = "";
    const bool good = pst_plugin_guard_is_on() ? pst_plugin_guard_run(c, why)
                                               : pst_plugin_frame_run(c, why);

    if (!good && c->fault != NULL && !c->fault->set)
        pst_call_fault(c, PST_FAULT_PLUGIN, {.i = pst_fault_keep_text(why)});
}

/* --- the last kernel ------------------------------------------------------ */

/* Chooses the kernel that the last entry of the table runs: the first that has
 * the dtype, else one of f32 with conversions. Sets c->owner; NULL if there is
 * none. */
static const struct pst_kernel *choose_kernel(struct pst_call *c)
{
    const struct pst_plugin_kernel *last = c->owner;
    const struct pst_plugin_row *row = last->row;
    const struct pst_kernels all = {row->kernels,
                                    (unsigned)row->given->n_kernels + 1};

    for (unsigned i = 0; i + 1 < all.n; i++)
        if (pst_kernel_fits(&all.at[i], c, PST_ISA_ANY)) {
            c->owner = all.at[i].owner;
            return &all.at[i];
        }
    return pst_cpu_adapt(&all, c, PST_ISA_ANY);
}

static size_t last_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_call call = *c;
    const struct pst_kernel *kernel = choose_kernel(&call);

    return kernel == NULL || kernel->scratch == NULL
               ? 0
               : kernel->scratch(&call, threads);
}

static void last_run(const struct pst_call *c)
{
    struct pst_call call = *c;
    const struct pst_kernel *kernel = choose_kernel(&call);

    if (kernel != NULL)
        kernel->run(&call);
}

/* --- rows ----------------------------------------------------------------- */

static unsigned mask_of(const struct penstock_kernel *given)
{
    unsigned mask = 0;

    for (size_t i = 0; i < given->n_dtypes; i++) {
        enum pst_dtype dtype;

        if (pst_dtype_from_dl(given->dtypes[i], &dtype))
            mask |= 1u << dtype;
    }
    return mask;
}

/* Returns "mylib.scale.default f32,f64". */
static const char *name_of(const struct pst_plugin_row *row, unsigned mask,
                           struct pst_arena *arena)
{
    struct pst_str text = {0};
    char *name = NULL;

    pst_str_add(&text, row->schema.name);
    for (unsigned d = 0, n = 0; d < PST_N_DTYPES; d++)
        if (mask & 1u << d)
            pst_str_addf(&text, "%s%s", n++ == 0 ? " " : ",",
                         pst_dtype_name(d));
    if (!text.failed)
        name = pst_arena_strdup(arena, pst_str_text(&text));
    pst_str_fini(&text);
    return name;
}

bool pst_plugin_kernels_init(struct pst_plugin_row *row,
                             struct pst_arena *arena)
{
    const struct penstock_op *given = row->given;
    const unsigned n = (unsigned)given->n_kernels;
    unsigned all = 0;

    row->kernels = pst_arena_calloc(arena, n + 1, sizeof(*row->kernels));
    row->owners = pst_arena_calloc(arena, n + 1, sizeof(*row->owners));
    if (row->kernels == NULL || row->owners == NULL)
        return false;
    for (unsigned i = 0; i <= n; i++) {
        const struct penstock_kernel *from =
            i < n ? pst_plugin_kernel_at(given, i) : NULL;
        unsigned mask = from != NULL ? mask_of(from) : all;

        if (from == NULL && (mask & PST_D(F32)))
            mask |= PST_D(BF16) | PST_D(F16);
        row->owners[i] = (struct pst_plugin_kernel){row, from};
        row->kernels[i] = (struct pst_kernel){
            .name = name_of(row, mask, arena),
            .isa = PST_ISA_ANY,
            .dtypes = mask,
            .flags = from != NULL && (from->flags & PENSTOCK_STRIDED)
                         ? PST_K_STRIDED
                         : 0,
            .scratch = from != NULL ? scratch : last_scratch,
            .run = from != NULL ? run : last_run,
            .owner = &row->owners[i],
        };
        if (row->kernels[i].name == NULL)
            return false;
        all |= mask;
    }
    return true;
}
