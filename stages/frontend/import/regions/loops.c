// SPDX-License-Identifier: Apache-2.0
/*
 * Unrolls loops with a known number of trips: scan, map and while_loop of
 * torch.export. Each trip gets its own nodes, so gradients, cuts and memory
 * planning need no support for loops.
 */
#include "stages/frontend/import/regions/regions.h"
#include "stages/ops/core/rows.h"

#include <math.h>

#define MAX_TRIPS 10000
/* most nodes of a graph with nested loops */
#define MAX_NODES 2000000
#define MAX_EXACT 9007199254740992.0 /* largest exact integer in a double */

/* A list of tensors among the operands of a loop's node. */
struct operands {
    const char *const *names;
    unsigned n;
};

static enum pst_status report_inconsistent(struct pst_import *import)
{
    return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                        "the body of a loop does not fit its operands and "
                        "results");
}

/* Reads operand list i of a node; false if an entry is not a tensor. */
static bool list_at(const struct pst_doc_node *node, unsigned i,
                    struct operands *ret)
{
    const struct pst_doc_arg *arg =
        i < node->n_inputs ? &node->inputs[i].arg : NULL;

    *ret = (struct operands){0};
    if (arg == NULL || arg->kind == PST_DOC_NONE)
        return true;
    if (arg->kind == PST_DOC_TENSORS)
        *ret = (struct operands){(const char *const *)arg->names, arg->n};
    return arg->kind == PST_DOC_TENSORS || arg->n == 0;
}

/* Stores the current values of a list's operands in ret. */
static enum pst_status read_operands(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const struct operands *list,
                                     struct pst_value **ret)
{
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_value *v = pst_import_find(scope, list->names[i]);

        if (v == NULL)
            return pst_diag_set(import->diag, PST_E_MODEL_OUTPUT_KIND,
                                "operand %u of a loop is not a tensor", i);
        ret[i] = pst_functionalise_read(import->functional, v);
        if (ret[i] == NULL)
            return import->build.status;
    }
    return PST_OK;
}

/* Imports one trip with n_out results. */
static enum pst_status run_body(struct pst_import *import,
                                const struct pst_scope *scope,
                                const struct pst_doc_graph *body,
                                struct pst_value *const *in, unsigned n_in,
                                struct pst_value **out, unsigned n_out)
{
    struct pst_scope inner = pst_import_inherit(scope);
    enum pst_status status = PST_OK;

    if (body->n_inputs != n_in || body->n_outputs != n_out)
        return report_inconsistent(import);
    if (import->build.graph->nodes.n > MAX_NODES)
        return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                            "not supported: loops that are more than %d "
                            "operators when all their trips are written out",
                            MAX_NODES);
    pst_import_enter_scope(&inner, body);
    inner.inner = true;
    for (unsigned i = 0; i < n_in && status == PST_OK; i++) {
        if (body->inputs[i].kind != PST_DOC_TENSOR)
            status = report_inconsistent(import);
        else
            status = pst_import_define(import, &inner, body->inputs[i].name,
                                       in[i], &in[i]->meta);
    }
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner);
    for (unsigned i = 0; i < n_out && status == PST_OK; i++) {
        struct pst_value *v = pst_import_result(&inner, i);

        if (v == NULL)
            status = pst_diag_set(import->diag, PST_E_MODEL_OUTPUT_KIND,
                                  "result %u of a loop is not a tensor", i);
        else if ((out[i] = pst_functionalise_read(import->functional, v)) ==
                 NULL)
            status = import->build.status;
    }
    pst_import_leave_scope(&inner);
    return status;
}

static struct pst_value **new_values(struct pst_import *import, size_t n)
{
    struct pst_value **ret =
        pst_arena_calloc(&import->build.graph->arena, n + 1, sizeof(void *));

    if (ret == NULL)
        import->build.status = pst_diag_nomem(import->diag, n);
    return ret;
}

static enum pst_status define_results(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_names *names,
                                      struct pst_value *const *values)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < names->n && status == PST_OK; i++)
        if (names->at[i] != NULL)
            status = pst_import_define(import, scope, names->at[i], values[i],
                                       &values[i]->meta);
    return status;
}

/* --- scan, map ------------------------------------------------------------ */

/* Operands of a loop over slices: carried values, sliced tensors, then tensors
 * that all trips share. */
struct slices {
    struct operands list[3];
    unsigned n_in, n_out, n_trips;
    struct pst_value **in;  /* inputs of the current trip */
    struct pst_value **xs;  /* the sliced tensors */
    struct pst_value **out; /* results of the current trip */
    struct pst_value **all; /* results of all trips: [result][trip] */
};

/* Sets n_trips. If a symbolic size determines it, that size becomes fixed. */
static enum pst_status count_trips(struct pst_import *import, struct slices *s)
{
    struct pst_build *b = &import->build;

    for (unsigned i = 0; i < s->list[1].n; i++) {
        const struct pst_value *x = s->xs[i];
        const int64_t n = x->meta.rank > 0 ? x->meta.size[0] : 0;

        if (n < 1 || n > MAX_TRIPS || (i > 0 && n != (int64_t)s->n_trips))
            return pst_diag_set(
                import->diag, PST_E_OP_NOT_SUPPORTED,
                "not supported: a loop over %lld slices (1 to %d are)",
                (long long)n, MAX_TRIPS);
        s->n_trips = (unsigned)n;
        (void)pst_extent_is(b, pst_extent_of(b, x, 0), pst_extent(n));
    }
    return s->n_trips > 0 ? b->status : report_inconsistent(import);
}

static enum pst_status open_slices(struct pst_import *import,
                                   const struct pst_scope *scope,
                                   struct slices *s)
{
    const unsigned n_carried = s->list[0].n, n_xs = s->list[1].n;
    enum pst_status status;

    s->n_in = n_carried + n_xs + s->list[2].n;
    s->in = new_values(import, s->n_in);
    s->xs = new_values(import, n_xs);
    s->out = new_values(import, s->n_out);
    if (s->in == NULL || s->xs == NULL || s->out == NULL)
        return import->build.status;
    status = read_operands(import, scope, &s->list[0], s->in);
    if (status == PST_OK)
        status = read_operands(import, scope, &s->list[1], s->xs);
    if (status == PST_OK)
        status =
            read_operands(import, scope, &s->list[2], s->in + n_carried + n_xs);
    if (status == PST_OK)
        status = count_trips(import, s);
    if (status != PST_OK)
        return status;
    s->all = new_values(import, (size_t)s->n_out * s->n_trips);
    return s->all != NULL ? PST_OK : import->build.status;
}

static enum pst_status run_trip(struct pst_import *import,
                                const struct pst_scope *scope,
                                const struct pst_doc_graph *body,
                                struct slices *s, unsigned trip)
{
    const unsigned n_carried = s->list[0].n;
    enum pst_status status;

    for (unsigned i = 0; i < s->list[1].n; i++) {
        struct pst_value *v =
            pst_emit(&import->build, &pst_op_select_int,
                     PST_ARGS(pst_v(s->xs[i]), pst_i(0), pst_i(trip)));

        if (v == NULL)
            return import->build.status;
        s->in[n_carried + i] = v;
    }
    status = run_body(import, scope, body, s->in, s->n_in, s->out, s->n_out);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < s->n_out; i++) {
        if (i < n_carried)
            s->in[i] = s->out[i];
        s->all[(size_t)i * s->n_trips + trip] = s->out[i];
    }
    return PST_OK;
}

/* Imports a loop over slices. Its results are the final carried values and, for
 * each other result of the body, the results of all trips, stacked. */
static enum pst_status import_scan(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_graph *body,
                                   struct slices *s,
                                   const struct pst_names *names)
{
    enum pst_status status;

    s->n_out = names->n;
    status = open_slices(import, scope, s);
    for (unsigned t = 0; t < s->n_trips && status == PST_OK; t++)
        status = run_trip(import, scope, body, s, t);
    for (unsigned i = s->list[0].n; i < s->n_out && status == PST_OK; i++) {
        if (names->at[i] == NULL)
            continue;
        s->out[i] = pst_emit(
            &import->build, &pst_op_stack,
            PST_ARGS(pst_values(&s->all[(size_t)i * s->n_trips], s->n_trips),
                     pst_i(0)));
        if (s->out[i] == NULL)
            status = import->build.status;
    }
    return status == PST_OK ? define_results(import, scope, names, s->out)
                            : status;
}

enum pst_status pst_import_scan_loop(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_doc_node *node,
                                     const struct pst_names *names)
{
    const struct pst_doc_arg *body = pst_doc_arg_at(node, 0, PST_DOC_GRAPH);
    struct slices s = {0};

    if (body == NULL || !list_at(node, 1, &s.list[0]) ||
        !list_at(node, 2, &s.list[1]) || !list_at(node, 3, &s.list[2]) ||
        s.list[0].n > names->n)
        return report_inconsistent(import);
    return import_scan(import, scope, body->graph, &s, names);
}

enum pst_status pst_import_map_loop(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_names *names)
{
    const struct pst_doc_arg *body = pst_doc_arg_at(node, 0, PST_DOC_GRAPH);
    struct slices s = {0};

    if (body == NULL || !list_at(node, 1, &s.list[1]) ||
        !list_at(node, 2, &s.list[2]))
        return report_inconsistent(import);
    return import_scan(import, scope, body->graph, &s, names);
}

/* --- while_loop ------------------------------------------------------------
 */

/* If the counter depends on constants alone, replaces it by a constant: the
 * next trip need not compute it from the beginning. */
static enum pst_status fold_counter(struct pst_import *import,
                                    struct pst_value **v)
{
    struct pst_build *b = &import->build;
    double number = 0.0;
    bool known = false;
    enum pst_status status;

    if (pst_dtype_kind((*v)->meta.dtype) == PST_KIND_FLOAT)
        return PST_OK;
    status = pst_import_fold(import, *v, &known, &number);
    if (status != PST_OK || !known || fabs(number) > MAX_EXACT)
        return status;
    *v = pst_emit(b, &pst_op_full,
                  PST_ARGS(pst_extents_of(b, *v), pst_i((int64_t)number),
                           pst_dtype_arg((*v)->meta.dtype)));
    return *v != NULL ? PST_OK : b->status;
}

/* Evaluates the loop's condition. *ret is true if another trip follows. */
static enum pst_status eval_condition(struct pst_import *import,
                                      const struct pst_scope *scope,
                                      const struct pst_doc_graph *condition,
                                      struct pst_value *const *in,
                                      unsigned n_in, bool *ret)
{
    struct pst_value *v = NULL;
    double number = 0.0;
    bool known = false;
    enum pst_status status =
        run_body(import, scope, condition, in, n_in, &v, 1);

    if (status == PST_OK)
        status = pst_import_fold(import, v, &known, &number);
    if (status == PST_OK && !known)
        status = pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                              "not supported: a while_loop whose number of "
                              "trips depends on data: count trips from a "
                              "constant, or use scan");
    *ret = number != 0.0;
    return status;
}

enum pst_status pst_import_while_loop(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *node,
                                      const struct pst_names *names)
{
    const struct pst_doc_arg *condition =
        pst_doc_arg_at(node, 0, PST_DOC_GRAPH);
    const struct pst_doc_arg *body = pst_doc_arg_at(node, 1, PST_DOC_GRAPH);
    struct operands carried, shared;
    struct pst_value **in;
    enum pst_status status;
    unsigned n;

    if (condition == NULL || body == NULL || !list_at(node, 2, &carried) ||
        !list_at(node, 3, &shared) || carried.n != names->n)
        return report_inconsistent(import);
    n = carried.n + shared.n;
    in = new_values(import, n);
    if (in == NULL)
        return import->build.status;
    status = read_operands(import, scope, &carried, in);
    if (status == PST_OK)
        status = read_operands(import, scope, &shared, in + carried.n);
    for (unsigned trip = 0; status == PST_OK; trip++) {
        bool again = false;

        status = eval_condition(import, scope, condition->graph, in, n, &again);
        if (status != PST_OK || !again)
            break;
        if (trip == MAX_TRIPS)
            return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                                "not supported: a loop of more than %d trips",
                                MAX_TRIPS);
        status = run_body(import, scope, body->graph, in, n, in, carried.n);
        for (unsigned i = 0; i < carried.n && status == PST_OK; i++)
            status = fold_counter(import, &in[i]);
    }
    return status == PST_OK ? define_results(import, scope, names, in) : status;
}
