// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/sizes/extent.h"

#include "stages/base/checked.h"

#include <inttypes.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

const char pst_expr_unknown[] = "?";

bool pst_expr_is_unknown(const char *expr)
{
    return expr != NULL && expr[0] == '?';
}

static void no_memory(struct pst_build *build)
{
    if (build->status == PST_OK)
        build->status = pst_diag_nomem(build->diag, 0);
}

/* --- reading ------------------------------------------------------------ */

struct pst_extent pst_extent_in(const struct pst_build *build,
                                const struct pst_arg *arg, unsigned k)
{
    const bool list = arg->kind == PST_ARG_INTS;
    struct pst_extent ret = pst_extent(list ? arg->ints[k] : arg->i);

    if (build->sizes != NULL && arg->exprs != NULL)
        ret.expr = arg->exprs[k];
    return ret;
}

struct pst_extent pst_extent_of(const struct pst_build *build,
                                const struct pst_value *value, unsigned d)
{
    struct pst_extent ret = pst_extent(value->meta.size[d]);

    if (build->sizes != NULL && value->dims != NULL)
        ret.expr = value->dims[d];
    return ret;
}

struct pst_extent pst_extent_numel(struct pst_build *build,
                                   const struct pst_value *value)
{
    struct pst_extent ret = pst_extent(1);

    for (unsigned d = 0; d < value->meta.rank; d++)
        ret = pst_extent_mul(build, ret, pst_extent_of(build, value, d));
    return ret;
}

/* --- expressions -------------------------------------------------------- */

/* Returns the canonical text of a new expression; pst_expr_unknown if the text
 * gets too long. */
static const char *make_canonical(struct pst_build *build,
                                  const struct pst_str *text)
{
    const struct pst_expr *tree = NULL;
    const char *ret = NULL;
    struct pst_arena arena;
    enum pst_status status;

    if (build->status != PST_OK)
        return pst_expr_unknown;
    pst_arena_init(&arena, TAG);
    status = text->failed
                 ? PST_ERR_NOMEM
                 : pst_expr_parse(&arena, pst_str_text(text), &tree, NULL);
    if (status == PST_OK)
        status = pst_expr_print(&build->graph->arena, tree, &ret, NULL);
    pst_arena_fini(&arena);
    if (status == PST_ERR_NOMEM)
        no_memory(build);
    return status == PST_OK ? ret : pst_expr_unknown;
}

static void add_operand(struct pst_str *out, struct pst_extent a)
{
    if (a.expr != NULL)
        pst_str_add(out, a.expr);
    else
        pst_str_addf(out, "%" PRId64, a.value);
}

/* Returns the expression op(a, b). */
static const char *call_expr(struct pst_build *build, const char *op,
                             struct pst_extent a, struct pst_extent b)
{
    struct pst_str text = {0};
    const char *ret;

    if (pst_expr_is_unknown(a.expr) || pst_expr_is_unknown(b.expr))
        return pst_expr_unknown;
    pst_str_addf(&text, "%s(", op);
    add_operand(&text, a);
    pst_str_add(&text, ", ");
    add_operand(&text, b);
    pst_str_add(&text, ")");
    ret = make_canonical(build, &text);
    pst_str_fini(&text);
    return ret;
}

static bool is_number(struct pst_extent a, int64_t n)
{
    return a.expr == NULL && a.value == n;
}

static bool is_same(struct pst_extent a, struct pst_extent b)
{
    return a.expr != NULL && b.expr != NULL && !pst_expr_is_unknown(a.expr) &&
           strcmp(a.expr, b.expr) == 0;
}

/* --- arithmetic --------------------------------------------------------- */

static struct pst_extent make_extent(struct pst_build *build, const char *op,
                                     struct pst_extent a, struct pst_extent b,
                                     bool fits, int64_t value)
{
    struct pst_extent ret = pst_extent(fits ? value : 0);

    if (!fits && build->status == PST_OK)
        build->status = pst_diag_set(build->diag, PST_E_SIZE_OVERFLOW,
                                     "a size that is computed of %" PRId64
                                     " and %" PRId64 " does not fit 64 bits",
                                     a.value, b.value);
    if (a.expr != NULL || b.expr != NULL)
        ret.expr = call_expr(build, op, a, b);
    return ret;
}

struct pst_extent pst_extent_add(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    int64_t value = 0;
    const bool fits = !PST_ADD(a.value, b.value, &value);

    if (is_number(a, 0) || is_number(b, 0))
        return is_number(a, 0) ? b : a;
    return make_extent(build, "Add", a, b, fits, value);
}

struct pst_extent pst_extent_sub(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    if (is_same(a, b))
        return pst_extent(0);
    return pst_extent_add(build, a, pst_extent_mul(build, pst_extent(-1), b));
}

struct pst_extent pst_extent_mul(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    int64_t value = 0;
    const bool fits = !PST_MUL(a.value, b.value, &value);

    if (is_number(a, 1) || is_number(b, 1))
        return is_number(a, 1) ? b : a;
    if (is_number(a, 0) || is_number(b, 0))
        return pst_extent(0);
    return make_extent(build, "Mul", a, b, fits, value);
}

static int64_t floor_ratio(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

struct pst_extent pst_extent_floordiv(struct pst_build *build,
                                      struct pst_extent a, struct pst_extent b)
{
    const bool fits = b.value > 0;

    if (is_number(b, 1))
        return a;
    return make_extent(build, "FloorDiv", a, b, fits,
                       fits ? floor_ratio(a.value, b.value) : 0);
}

struct pst_extent pst_extent_ceildiv(struct pst_build *build,
                                     struct pst_extent a, struct pst_extent b)
{
    const bool fits = b.value > 0;

    if (is_number(b, 1))
        return a;
    return make_extent(
        build, "CeilDiv", a, b, fits,
        fits ? floor_ratio(a.value, b.value) + (a.value % b.value != 0) : 0);
}

struct pst_extent pst_extent_mod(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    const bool fits = b.value > 0;

    if (is_number(b, 1))
        return pst_extent(0);
    return make_extent(build, "Mod", a, b, fits,
                       fits ? a.value - floor_ratio(a.value, b.value) * b.value
                            : 0);
}

struct pst_extent pst_extent_min(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    return is_same(a, b) ? a
                         : make_extent(build, "Min", a, b, true,
                                       a.value < b.value ? a.value : b.value);
}

struct pst_extent pst_extent_max(struct pst_build *build, struct pst_extent a,
                                 struct pst_extent b)
{
    return is_same(a, b) ? a
                         : make_extent(build, "Max", a, b, true,
                                       a.value > b.value ? a.value : b.value);
}

/* --- decisions ---------------------------------------------------------- */

static void limit_size(struct pst_build *build, const char *expr)
{
    struct pst_symbols *symbols = build->sizes->symbols;

    for (size_t i = 0; i < symbols->ranges.n; i++)
        if (strcmp(symbols->ranges.at[i].expr, expr) == 0)
            return;
    if (build->status == PST_OK)
        build->status = pst_symbols_limit(symbols, expr, 1, 1, build->diag);
}

static void fix_sizes(struct pst_build *build)
{
    if (build->sizes->fixed == NULL)
        build->sizes->fixed =
            build->origin != NULL
                ? pst_arena_strdup(&build->graph->arena, build->origin)
                : "";
    if (build->sizes->fixed == NULL)
        no_memory(build);
}

void pst_extent_decide(struct pst_build *build, const char *expr, bool truth)
{
    struct pst_str text = {0};
    const char *what;

    if (expr == NULL || build->sizes == NULL)
        return;
    pst_str_addf(&text, truth ? "%s" : "Not(%s)", expr);
    what = pst_expr_is_unknown(expr) ? expr : make_canonical(build, &text);
    pst_str_fini(&text);
    if (pst_expr_is_unknown(what))
        fix_sizes(build);
    else
        limit_size(build, what);
}

bool pst_extent_is(struct pst_build *build, struct pst_extent a,
                   struct pst_extent b)
{
    const bool ret = a.value == b.value;

    if ((a.expr != NULL || b.expr != NULL) && !is_same(a, b))
        pst_extent_decide(build, call_expr(build, ret ? "Eq" : "Ne", a, b),
                          true);
    return ret;
}

bool pst_extent_less(struct pst_build *build, struct pst_extent a,
                     struct pst_extent b)
{
    const bool ret = a.value < b.value;

    if ((a.expr != NULL || b.expr != NULL) && !is_same(a, b))
        pst_extent_decide(build,
                          ret ? call_expr(build, "StrictLessThan", a, b)
                              : call_expr(build, "GreaterThan", a, b),
                          true);
    return ret;
}

struct pst_extent pst_extent_broadcast(struct pst_build *build,
                                       struct pst_extent a, struct pst_extent b)
{
    if (is_number(a, 1) || is_number(b, 1))
        return is_number(a, 1) ? b : a;
    if (a.value == 1 && b.value != 1) /* a is symbolic and is 1 in this graph */
        return pst_extent_is(build, a, pst_extent(1)) ? b : a;
    if (b.value == 1 && a.value != 1)
        return pst_extent_is(build, b, pst_extent(1)) ? a : b;
    return a.expr != NULL ? a : b;
}

struct pst_extent pst_extent_bound(struct pst_build *build,
                                   const struct pst_arg *arg,
                                   struct pst_extent size,
                                   struct pst_extent otherwise)
{
    struct pst_extent at;

    if (arg->kind != PST_ARG_INT)
        return otherwise;
    at = pst_extent_in(build, arg, 0);
    if (is_number(at, INT64_MAX))
        return size;
    if (is_number(at, 0))
        return at;
    if (pst_extent_less(build, at, pst_extent(0)))
        return pst_extent_max(build, pst_extent_add(build, size, at),
                              pst_extent(0));
    return pst_extent_min(build, at, size);
}

/* --- arguments ---------------------------------------------------------- */

struct pst_arg pst_extents_arg(struct pst_build *build,
                               const struct pst_extent *sizes, unsigned n)
{
    struct pst_arena *arena = &build->graph->arena;
    int64_t *ints = pst_arena_calloc(arena, n + 1, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, n + 1, sizeof(*exprs));
    struct pst_arg ret = pst_ints(ints, n);

    if (ints == NULL || exprs == NULL) {
        no_memory(build);
        return pst_none();
    }
    for (unsigned k = 0; k < n; k++) {
        ints[k] = sizes[k].value;
        exprs[k] = sizes[k].expr;
        if (exprs[k] != NULL)
            ret.exprs = exprs;
    }
    return ret;
}

struct pst_arg pst_extent_arg(struct pst_build *build, struct pst_extent size)
{
    struct pst_arg ret = pst_i(size.value);
    const char **expr;

    if (size.expr == NULL)
        return ret;
    expr = pst_arena_memdup(&build->graph->arena, &size.expr, sizeof(*expr));
    if (expr == NULL)
        no_memory(build);
    ret.exprs = expr;
    return ret;
}

struct pst_arg pst_extents_of(const struct pst_build *build,
                              const struct pst_value *value)
{
    struct pst_arg ret = pst_ints(value->meta.size, value->meta.rank);

    if (build->sizes != NULL)
        ret.exprs = value->dims;
    return ret;
}

static void add_number(struct pst_str *out, const struct pst_arg *a)
{
    const struct pst_expr number = {
        .value = a->kind == PST_ARG_FLOAT
                     ? (struct pst_number){PST_NUMBER_FLOAT, 0, 1, a->f}
                 : a->kind == PST_ARG_BOOL
                     ? (struct pst_number){PST_NUMBER_BOOL, a->b, 1, 0}
                     : (struct pst_number){PST_NUMBER_EXACT, a->i, 1, 0}};

    if (a->exprs != NULL && a->exprs[0] != NULL)
        pst_str_add(out, a->exprs[0]);
    else
        pst_expr_add(&number, out);
}

static const char *expr_of(const struct pst_arg *a)
{
    return a != NULL && a->exprs != NULL ? a->exprs[0] : NULL;
}

struct pst_arg pst_extent_fold(struct pst_build *build, const char *op,
                               const struct pst_arg *a, const struct pst_arg *b,
                               struct pst_arg value)
{
    struct pst_str text = {0};
    const char *expr = pst_expr_unknown;
    const char **list;

    if (build->sizes == NULL || (expr_of(a) == NULL && expr_of(b) == NULL))
        return value;
    if (op != NULL && !pst_expr_is_unknown(expr_of(a)) &&
        !pst_expr_is_unknown(expr_of(b))) {
        pst_str_addf(&text, "%s(", op);
        add_number(&text, a);
        pst_str_add(&text, b != NULL ? ", " : "");
        if (b != NULL)
            add_number(&text, b);
        pst_str_add(&text, ")");
        expr = make_canonical(build, &text);
        pst_str_fini(&text);
    }
    list = pst_arena_memdup(&build->graph->arena, &expr, sizeof(*list));
    if (list == NULL)
        no_memory(build);
    value.exprs = list;
    return value;
}

/* --- results ------------------------------------------------------------ */

void pst_extent_set(struct pst_build *build, struct pst_value *value,
                    unsigned d, struct pst_extent size)
{
    const char *expr = size.expr;
    const char **dims;

    if (size.value != value->meta.size[d])
        expr = pst_expr_unknown;
    if (value->dims == NULL && expr == NULL)
        return;
    dims = pst_arena_calloc(&build->graph->arena, PST_MAX_RANK, sizeof(*dims));
    if (dims == NULL) {
        no_memory(build);
        return;
    }
    for (unsigned k = 0; value->dims != NULL && k < value->meta.rank; k++)
        dims[k] = value->dims[k];
    dims[d] = expr;
    value->dims = dims;
}
