// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/unify.h"

#include <inttypes.h>

#define TAG PST_TAG_PLAN

enum pst_status pst_unified_init(struct pst_unified *u,
                                 const struct pst_model *file,
                                 struct pst_build *build, struct pst_diag *diag)
{
    const struct pst_symbols *symbols = &file->symbols;
    enum pst_status status = PST_OK;

    *u = (struct pst_unified){.build = build};
    u->numbers = file->fixed != NULL || symbols->at.n == 0;
    pst_symbols_init(&u->symbols);
    pst_map_init(&u->texts, TAG);
    for (size_t i = 0; i < symbols->at.n && status == PST_OK; i++)
        status = pst_symbols_add(&u->symbols, symbols->at.at[i].name, false, 0,
                                 diag);
    for (size_t i = 0; i < symbols->ranges.n && status == PST_OK; i++)
        status = pst_symbols_limit(&u->symbols, symbols->ranges.at[i].expr,
                                   symbols->ranges.at[i].min,
                                   symbols->ranges.at[i].max, diag);
    return status;
}

void pst_unified_fini(struct pst_unified *u)
{
    pst_symbols_fini(&u->symbols);
    pst_map_fini(&u->texts);
}

/* --- expressions ---------------------------------------------------------- */

struct translator {
    const struct pst_unified *u;
    struct pst_arena *arena;
    struct pst_diag *diag;
    bool free; /* the expression has a symbolic size of the model */
};

static enum pst_status translate_expr(struct translator *t,
                                      const struct pst_expr *from,
                                      const struct pst_expr **ret)
{
    struct pst_expr *made;
    const char *text;

    if (from->symbol != NULL) {
        const struct pst_symbol *s =
            pst_symbols_find(&t->u->symbols, from->symbol);

        text = pst_map_get(&t->u->texts, from->symbol);
        t->free = t->free || text != NULL;
        if (text != NULL)
            return pst_expr_parse(t->arena, text, ret, t->diag);
        if (s == NULL || !s->known)
            return pst_diag_set(t->diag, PST_E_SIZE_UNKNOWN,
                                "nothing says what the new module's size %s is",
                                from->symbol);
        made = pst_arena_calloc(t->arena, 1, sizeof(*made));
        if (made == NULL)
            return pst_diag_nomem(t->diag, sizeof(*made));
        made->value = (struct pst_number){
            .kind = PST_NUMBER_EXACT, .n = s->value, .d = 1};
        *ret = made;
        return PST_OK;
    }
    made = pst_arena_memdup(t->arena, from, sizeof(*made));
    if (made == NULL)
        return pst_diag_nomem(t->diag, sizeof(*made));
    made->args = pst_arena_calloc(t->arena, from->n + 1, sizeof(void *));
    if (made->args == NULL)
        return pst_diag_nomem(t->diag, from->n);
    for (unsigned i = 0; i < from->n; i++) {
        enum pst_status status =
            translate_expr(t, from->args[i], &made->args[i]);

        if (status != PST_OK)
            return status;
    }
    *ret = made;
    return PST_OK;
}

/* Translates an expression of the file to the model's symbols; *ret is NULL if
 * the result is a number. */
static enum pst_status translate_text(const struct pst_unified *u,
                                      const char *expr, struct pst_arena *arena,
                                      const char **ret, struct pst_diag *diag)
{
    struct translator t = {.u = u, .arena = arena, .diag = diag};
    const struct pst_expr *from, *to = NULL;
    enum pst_status status = pst_expr_parse(arena, expr, &from, diag);

    *ret = NULL;
    if (status == PST_OK)
        status = translate_expr(&t, from, &to);
    return status == PST_OK && t.free ? pst_expr_print(arena, to, ret, diag)
                                      : status;
}

enum pst_status pst_unified_translate(const struct pst_unified *u,
                                      const char *const *exprs, unsigned n,
                                      struct pst_arena *arena,
                                      const char *const **ret,
                                      struct pst_diag *diag)
{
    const char **made;
    bool any = false;

    *ret = NULL;
    if (exprs == NULL || u->fixed || u->numbers)
        return PST_OK;
    made = pst_arena_calloc(arena, n + 1, sizeof(*made));
    if (made == NULL)
        return pst_diag_nomem(diag, n * sizeof(*made));
    for (unsigned k = 0; k < n; k++) {
        enum pst_status status = PST_OK;

        if (pst_expr_is_unknown(exprs[k]))
            made[k] = pst_expr_unknown;
        else if (exprs[k] != NULL)
            status = translate_text(u, exprs[k], arena, &made[k], diag);
        if (status != PST_OK)
            return status;
        any = any || made[k] != NULL;
    }
    if (any)
        *ret = made;
    return PST_OK;
}

/* --- sizes ---------------------------------------------------------------- */

static enum pst_status refuse_size(const struct pst_value *argument, unsigned d,
                                   int64_t want, int64_t have,
                                   struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_SWAP_INTERFACE,
                        "size %u of \"%s\" is %" PRId64
                        " in the new module where the call has %" PRId64,
                        d, argument->name, want, have);
}

/* Returns the symbol if the size is a single symbol, else NULL. */
static struct pst_symbol *symbol_of(struct pst_unified *u,
                                    const struct pst_value *argument,
                                    unsigned d)
{
    const char *expr = argument->dims == NULL ? NULL : argument->dims[d];

    return expr == NULL ? NULL : pst_symbols_find(&u->symbols, expr);
}

/* Returns a size of the call. If its expression is unknown, the model's sizes
 * become fixed. */
static struct pst_extent given_size(struct pst_unified *u,
                                    const struct pst_value *given, unsigned d)
{
    if (given->dims != NULL && pst_expr_is_unknown(given->dims[d])) {
        u->fixed = true;
        return pst_extent(given->meta.size[d]);
    }
    return (struct pst_extent){given->meta.size[d],
                               given->dims == NULL ? NULL : given->dims[d]};
}

enum pst_status pst_unified_bind(struct pst_unified *u,
                                 const struct pst_value *argument,
                                 const struct pst_value *given,
                                 struct pst_diag *diag)
{
    for (unsigned d = 0; d < argument->meta.rank && !u->numbers; d++) {
        struct pst_symbol *s = symbol_of(u, argument, d);
        const struct pst_extent size = given_size(u, given, d);

        if (s == NULL || s->known)
            continue;
        s->known = true;
        s->value = size.value;
        if (size.expr != NULL &&
            !pst_map_put(&u->texts, s->name, (void *)size.expr))
            return pst_diag_nomem(diag, sizeof(*s));
    }
    return PST_OK;
}

enum pst_status pst_unified_compare(struct pst_unified *u,
                                    const struct pst_value *argument,
                                    const struct pst_value *given,
                                    struct pst_diag *diag)
{
    struct pst_arena *arena = &u->build->graph->arena;

    for (unsigned d = 0; d < argument->meta.rank; d++) {
        const char *expr =
            argument->dims == NULL || u->numbers ? NULL : argument->dims[d];
        const struct pst_extent size = given_size(u, given, d);
        struct pst_extent want = pst_extent(argument->meta.size[d]);
        enum pst_status status = PST_OK;

        if (expr != NULL)
            status = pst_symbols_int(&u->symbols, expr, &want.value, diag);
        if (status == PST_OK && expr != NULL)
            status = translate_text(u, expr, arena, &want.expr, diag);
        if (status != PST_OK)
            return status;
        if (want.value != size.value)
            return refuse_size(argument, d, want.value, size.value, diag);
        if (expr == NULL)
            u->fixed = u->fixed || size.expr != NULL;
        else if (want.expr != NULL || size.expr != NULL)
            (void)pst_extent_is(u->build, want, size);
    }
    return u->build->status;
}

enum pst_status pst_unified_limit(struct pst_unified *u, struct pst_diag *diag)
{
    struct pst_arena *arena = &u->build->graph->arena;
    enum pst_status status =
        u->numbers ? PST_OK : pst_symbols_check(&u->symbols, diag);

    for (size_t i = 0;
         !u->numbers && i < u->symbols.ranges.n && status == PST_OK; i++) {
        const struct pst_range *range = &u->symbols.ranges.at[i];
        const char *expr = NULL;
        bool known = false;

        status = pst_symbols_are_known(&u->symbols, range->expr, &known, diag);
        if (status == PST_OK && known)
            status = translate_text(u, range->expr, arena, &expr, diag);
        if (status == PST_OK && expr != NULL)
            status = pst_symbols_limit(u->build->sizes->symbols, expr,
                                       range->min, range->max, diag);
    }
    return status;
}
