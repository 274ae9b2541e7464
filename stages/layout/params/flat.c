// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/params/flat.h"

#include "stages/graph/low.h"

#include "stages/compile/memplan.h"
#include "stages/layout/options.h"

#include <stdlib.h>
#include <string.h>

struct maker {
    const struct pst_uses *uses;
    const unsigned char *modes;
    const size_t *whole;
    unsigned *owners; /* per parameter that has only one owner: that owner */
    bool rows;
    int64_t block;
    struct pst_flats *flats;
    int *open; /* per stage: the flat that the next parameter joins, or -1 */
    int *last; /* per stage: the last parameter of its open flat */
    struct pst_diag *diag;
};

static bool is_number(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return len > 0;
}

size_t pst_flat_group(const char *fqn)
{
    const char *last = strrchr(fqn, '.');

    for (const char *at = fqn; last != NULL && at <= last;) {
        const size_t len = strcspn(at, ".");

        if (is_number(at, len))
            return (size_t)(at - fqn) + len;
        at += len + 1;
    }
    return last == NULL ? 0 : (size_t)(last - fqn);
}

static bool same_group(const struct maker *m, unsigned param, unsigned other)
{
    const char *a = m->uses->plan->params.at[param].fqn;
    const char *b = m->uses->plan->params.at[other].fqn;
    const size_t len = pst_flat_group(a);

    if (m->modes[param] != m->modes[other])
        return false;
    return m->modes[param] < PST_SHARING_ZERO2 ||
           (len == pst_flat_group(b) && strncmp(a, b, len) == 0);
}

static bool is_whole(const struct maker *m, unsigned param)
{
    return m->whole[param] > 0 && m->modes[param] != PST_SHARING_NONE;
}

static int64_t row_of(const struct pst_meta *meta)
{
    const int64_t rows = meta->rank > 0 ? meta->size[0] : 1;

    return rows > 0 ? PST_MAX(pst_meta_numel(meta) / rows, 1) : 1;
}

/* Returns the unit of shards of a parameter: whole rows and whole blocks. */
static int64_t unit_of(const struct maker *m, const struct pst_meta *meta,
                       bool rows)
{
    int64_t unit = rows ? row_of(meta) : 1;

    while (unit % m->block != 0)
        unit *= 2;
    return unit;
}

/* Sets *ret to the open flat of the stage if the parameter may join it, else to
 * a new flat. alone: this use of the parameter must have a flat of its own. */
static enum pst_status find_flat(struct maker *m, unsigned param,
                                 unsigned stage, bool alone, unsigned *ret)
{
    const bool whole = is_whole(m, param);
    const bool rows = whole || (m->rows && m->modes[param] != PST_SHARING_NONE);
    const struct pst_meta *meta = &m->uses->plan->params.at[param].meta;
    const enum pst_dtype dtype = pst_dtype_of_grad(meta->dtype);
    struct pst_flats *f = m->flats;
    const struct pst_flat new = {.stage = stage,
                                 .dtype = dtype,
                                 .single_use = alone,
                                 .unit = whole
                                             ? PST_MAX(pst_meta_numel(meta), 1)
                                             : unit_of(m, meta, rows),
                                 .first_owner = whole ? m->owners[param] : 0};
    const int open = m->open[stage];

    if (!alone && !rows && open >= 0 && f->all.at[open].dtype == dtype &&
        same_group(m, param, (unsigned)m->last[stage])) {
        *ret = (unsigned)open;
        m->last[stage] = (int)param;
        return PST_OK;
    }
    *ret = (unsigned)f->all.n;
    if (!pst_vec_push(PST_TAG_EXEC, &f->all, new))
        return pst_diag_nomem(m->diag, sizeof(new));
    if (!alone && !rows) {
        m->open[stage] = (int)*ret;
        m->last[stage] = (int)param;
    }
    return PST_OK;
}

static enum pst_status add_use(struct maker *m, unsigned param, unsigned stage,
                               unsigned use)
{
    const struct pst_meta *meta = &m->uses->plan->params.at[param].meta;
    const int64_t unit =
        PST_MAX((int64_t)(pst_mem_round(1) /
                          pst_dtype_size(pst_dtype_of_grad(meta->dtype))),
                m->block);
    struct pst_flat_part part = {.param = (int)param,
                                 .stage = stage,
                                 .use = use,
                                 .numel = pst_meta_numel(meta)};
    struct pst_flat *flat;
    const bool alone = m->uses->plan->params.at[param].n_stages > 1 ||
                       pst_uses_total(m->uses, param) > 1;
    enum pst_status status = find_flat(m, param, stage, alone, &part.flat);

    if (status != PST_OK)
        return status;
    flat = &m->flats->all.at[part.flat];
    part.begin = (flat->numel + unit - 1) / unit * unit;
    flat->numel = part.begin + part.numel;
    if (m->flats->first[param] < 0)
        m->flats->first[param] = (int)m->flats->parts.n;
    return pst_vec_push(PST_TAG_EXEC, &m->flats->parts, part)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(part));
}

static enum pst_status add_param(struct maker *m, unsigned param)
{
    const struct pst_plan_param *p = &m->uses->plan->params.at[param];
    enum pst_status status = PST_OK;

    m->flats->first[param] = -1;
    if (!m->uses->train && m->modes[param] == PST_SHARING_NONE)
        return PST_OK; /* replicas do not exchange this parameter */
    for (unsigned i = 0; i < p->n_stages && status == PST_OK; i++) {
        const unsigned n = pst_uses_parts(m->uses, param, p->stages[i]);

        for (unsigned use = 0; use < n && status == PST_OK; use++)
            status = add_use(m, param, p->stages[i], use);
    }
    return status;
}

/* A parameter of one stage that has one owner. */
struct owned {
    unsigned stage, param;
    size_t bytes;
};

/* Orders by stage, then by size, the largest first. */
static int compare_sizes(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;

    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->param < y->param ? -1 : 1;
}

/* Assigns each parameter of a stage to the owner that has the fewest bytes so
 * far; then owner 0 changes places with the owner that has the most. */
static void divide_stage(struct maker *m, const struct owned *all, size_t count,
                         size_t *loads, unsigned n)
{
    unsigned most = 0;

    memset(loads, 0, n * sizeof(*loads));
    for (size_t i = 0; i < count; i++) {
        unsigned least = 0;

        for (unsigned k = 1; k < n; k++)
            least = loads[k] < loads[least] ? k : least;
        m->owners[all[i].param] = least;
        loads[least] += all[i].bytes;
    }
    for (unsigned k = 1; k < n; k++)
        most = loads[k] > loads[most] ? k : most;
    for (size_t i = 0; i < count; i++) {
        unsigned *owner = &m->owners[all[i].param];

        *owner = *owner == 0 ? most : *owner == most ? 0 : *owner;
    }
}

/* Chooses the owners of the parameters whose optimizer needs all of them. */
static enum pst_status choose_owners(struct maker *m, unsigned n)
{
    const struct pst_plan *plan = m->uses->plan;
    struct owned *all =
        pst_calloc(PST_TAG_EXEC, plan->params.n + 1, sizeof(*all));
    size_t *loads = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*loads));
    size_t count = 0, begin = 0;
    enum pst_status status = PST_OK;

    if (all == NULL || loads == NULL)
        status = pst_diag_nomem(m->diag, plan->params.n * sizeof(*all));
    for (unsigned i = 0; status == PST_OK && i < plan->params.n; i++)
        if (is_whole(m, i) && plan->params.at[i].n_stages == 1)
            all[count++] =
                (struct owned){plan->params.at[i].stages[0], i, m->whole[i]};
    if (count > 0)
        qsort(all, count, sizeof(*all), compare_sizes);
    for (size_t i = 1; i <= count; i++)
        if (i == count || all[i].stage != all[begin].stage) {
            divide_stage(m, all + begin, i - begin, loads, n);
            begin = i;
        }
    pst_free(all);
    pst_free(loads);
    return status;
}

enum pst_status pst_flats_make(const struct pst_uses *uses,
                               const unsigned char *modes, const size_t *whole,
                               unsigned n, bool rows, int64_t block,
                               struct pst_arena *heap, struct pst_flats *ret,
                               struct pst_diag *diag)
{
    const struct pst_plan *plan = uses->plan;
    struct maker m = {.uses = uses,
                      .modes = modes,
                      .whole = whole,
                      .rows = rows,
                      .block = block,
                      .flats = ret,
                      .diag = diag};
    enum pst_status status = PST_OK;

    *ret = (struct pst_flats){0};
    ret->first =
        pst_arena_calloc(heap, plan->params.n + 1, sizeof(*ret->first));
    m.open = pst_calloc(PST_TAG_EXEC, plan->stages.n + 1, sizeof(*m.open));
    m.last = pst_calloc(PST_TAG_EXEC, plan->stages.n + 1, sizeof(*m.last));
    m.owners = pst_calloc(PST_TAG_EXEC, plan->params.n + 1, sizeof(*m.owners));
    if (ret->first == NULL || m.open == NULL || m.last == NULL ||
        m.owners == NULL)
        status = pst_diag_nomem(diag, plan->params.n * sizeof(*ret->first));
    if (status == PST_OK)
        status = choose_owners(&m, n);
    for (unsigned s = 0; status == PST_OK && s < plan->stages.n; s++)
        m.open[s] = -1;
    for (unsigned i = 0; status == PST_OK && i < plan->params.n; i++)
        status = add_param(&m, i);
    pst_free(m.owners);
    pst_free(m.open);
    pst_free(m.last);
    return status;
}

void pst_flats_fini(struct pst_flats *flats)
{
    pst_vec_fini(&flats->all);
    pst_vec_fini(&flats->parts);
}

void pst_flat_share(int64_t numel, int64_t unit, unsigned n, unsigned k,
                    int64_t *ret_begin, int64_t *ret_n)
{
    const int64_t units = (numel + unit - 1) / unit;
    const int64_t each = (units + n - 1) / n * unit;

    *ret_begin = PST_MIN(each * k, numel);
    *ret_n = PST_MIN(each, numel - *ret_begin);
}

void pst_flats_range(const struct pst_flats *flats, unsigned param, unsigned n,
                     unsigned k, int64_t *ret_begin, int64_t *ret_n)
{
    const int at = flats->first[param];
    const struct pst_flat_part *part;
    const struct pst_flat *flat;
    int64_t begin, numel, end;

    *ret_begin = *ret_n = 0;
    if (at < 0)
        return;
    part = &flats->parts.at[at];
    flat = &flats->all.at[part->flat];
    pst_flat_share(flat->numel, flat->unit, n,
                   pst_flat_share_number(flat->first_owner, n, k), &begin,
                   &numel);
    end = PST_MIN(begin + numel, part->begin + part->numel);
    begin = PST_MAX(begin, part->begin);
    *ret_begin = PST_MIN(begin - part->begin, part->numel);
    *ret_n = PST_MAX(end - begin, 0);
}
