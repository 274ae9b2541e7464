// SPDX-License-Identifier: Apache-2.0
/* Prints a program as text, as far as it is compiled. */
#include "stages/base/str.h"
#include "stages/compile/program.h"

static const char *const region_names[PST_R_BOUNDARY] = {
    [PST_R_NONE] = "-",
    [PST_R_FIXED] = "FIXED",
    [PST_R_WORK] = "WORK",
#define PST_REGION_ROW(name, writer, end) [PST_R_##name] = #name,
    PST_REGION_LIST(PST_REGION_ROW)
#undef PST_REGION_ROW
};

/* Prints a region's name; that of a boundary region is its writer and number.
 */
static void print_region(struct pst_str *out, const struct pst_program *p,
                         unsigned region)
{
    static const char *const crossing[] = {
        [PST_WRITER_ARRIVE_F] = "IN",
        [PST_WRITER_F] = "OUT",
        [PST_WRITER_ARRIVE_B] = "GRAD_IN",
        [PST_WRITER_I] = "GRAD_OUT",
    };

    if (region < PST_R_BOUNDARY)
        pst_str_add(out, region_names[region]);
    else
        pst_str_addf(out, "%s%u", crossing[p->regions[region].writer],
                     region - PST_R_BOUNDARY);
}

static void print_loc(struct pst_str *out, const struct pst_program *p,
                      const char *before, struct pst_loc loc)
{
    pst_str_add(out, before);
    print_region(out, p, loc.region);
    if (loc.region != PST_R_NONE)
        pst_str_addf(out, "+%zu", loc.offset);
}

static void print_locs(struct pst_str *out, const struct pst_program *p,
                       const char *before, const struct pst_loc *locs,
                       unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        print_loc(out, p, i == 0 ? before : ", ", locs[i]);
}

static void print_node(const struct pst_program *p,
                       const struct pst_exec_node *x, struct pst_str *out)
{
    const bool bound = pst_program_is_bound(p);

    pst_str_addf(out, "    %%%s = %s by %s",
                 x->node->n_outs > 0 ? x->node->outs[0]->name : "",
                 x->node->schema->name, x->kernel->name);
    if (x->role == PST_GRAD_FUSED)
        pst_str_addf(out, ", %s %%%s",
                     !bound           ? "into"
                     : x->first_touch ? "is"
                                      : "added to",
                     x->grad->name);
    if (bound) {
        print_locs(out, p, ": ", x->out, x->call.n_out);
        print_locs(out, p, " <- ", x->in, x->call.n_in);
    }
    if (bound && x->call.scratch_size > 0) {
        print_loc(out, p, ", scratch ", x->scratch);
        pst_str_addf(out, " %zu", x->call.scratch_size);
    }
    pst_str_add(out, "\n");
}

static void print_lists(const struct pst_program *p, struct pst_str *out)
{
    static const char *const names[PST_N_LISTS] = {"P", "F", "B", "W"};

    for (int l = 0; l < PST_N_LISTS; l++) {
        const struct pst_exec_list *list = &p->lists[l];

        if (list->n == 0)
            continue;
        pst_str_addf(out, "  list %s", names[l]);
        if (list->work > 0)
            pst_str_addf(out, " work=%zu", list->work);
        pst_str_add(out, "\n");
        for (unsigned i = 0; i < list->n; i++)
            print_node(p, &list->at[i], out);
    }
}

static void print_places(const struct pst_program *p, struct pst_str *out)
{
    static const char *const ends[PST_N_ENDS] = {"F", "I", "W"};

    for (unsigned r = PST_R_WORK; r < p->n_regions; r++) {
        if (p->regions[r].size == 0)
            continue;
        pst_str_add(out, "  region ");
        print_region(out, p, r);
        if (r >= PST_R_BOUNDARY)
            pst_str_addf(out, " until=%s", ends[p->regions[r].end]);
        pst_str_addf(out, " size=%zu\n", p->regions[r].size);
    }
    for (size_t i = 0; i < p->graph->values.n; i++) {
        const struct pst_value *value = p->graph->values.at[i];

        if (value->base != NULL || value->kind == PST_VALUE_GRAD ||
            p->places[i].region == PST_R_NONE)
            continue;
        pst_str_addf(out, "  place %%%s", value->name);
        print_loc(out, p, " ", p->places[i]);
        pst_str_addf(out, " %zu\n", pst_meta_span(&value->meta));
    }
}

void pst_program_print(const struct pst_program *p, struct pst_str *out)
{
    pst_graph_print(p->graph, out);
    if (p->lists[PST_LIST_F].at == NULL)
        return;
    pst_str_addf(out, "program stage=%u {\n", p->stage);
    print_lists(p, out);
    if (p->places != NULL)
        print_places(p, out);
    if (pst_program_is_compiled(p))
        pst_str_addf(out, "  copied=%zu\n", p->copied);
    pst_str_add(out, "}\n");
}
