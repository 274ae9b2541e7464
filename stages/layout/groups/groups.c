// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/groups/groups.h"

#include <fnmatch.h>
#include <string.h>

#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/graph/calls.h"
#include "stages/graph/schema.h"
#include "stages/layout/groups/rules.h"
#include "stages/ops/core/rows.h"

#define TAG PST_TAG_PLAN
/* maximum number of groups: indices in pst_groups.group_of are bytes */
#define MAX_GROUPS 255

struct groups_maker {
    struct pst_groups *ret;
    const struct pst_plan *plan;
    const struct pst_exec_options *options;
    struct pst_rules rules;
    struct pst_map types;  /* path of a module -> its class */
    struct pst_map tables; /* FQN of each parameter that an embedding reads */
    /* index of the last matrix (groups.h) among the parameters; -1: none */
    int last;
    const struct pst_node *last_reader;
    struct pst_diag *diag;
};

/* --- what is known of parameters ------------------------------------------ */

/* Returns "LayerNorm" of "torch.nn.modules.normalization.LayerNorm". */
static const char *class_of(const char *type)
{
    const char *dot = strrchr(type, '.');

    return dot != NULL ? dot + 1 : type;
}

/* True if the result consists of elements of the first operand, perhaps in
 * another dtype. */
static bool copies(const struct pst_node *node)
{
    return ((node->op->flags & (PST_OP_VIEW | PST_OP_MAYBE_VIEW)) != 0 ||
            node->op == &pst_op__to_copy || node->op == &pst_op_clone) &&
           node->args[0].kind == PST_ARG_VALUE;
}

/* Returns the parameter that a value of a stage is a view or a copy of, also in
 * another dtype or sent by another stage; NULL: none. */
static const struct pst_value *param_of(const struct groups_maker *m,
                                        size_t stage, struct pst_value *v)
{
    for (;;) {
        const struct pst_stage *at = &m->plan->stages.at[stage];
        const struct pst_edge *edge;
        size_t i = 0;

        v = pst_value_storage(v);
        if (v->def != NULL && copies(v->def)) {
            v = v->def->args[0].value;
            continue;
        }
        if (v->kind != PST_VALUE_INPUT)
            break;
        while (i < at->graph->inputs.n && at->graph->inputs.at[i] != v)
            i++;
        if (i == at->graph->inputs.n || at->inputs[i].kind != PST_SOURCE_EDGE)
            break;
        edge = &m->plan->edges.at[at->inputs[i].index];
        if (edge->carries != NULL)
            break;
        stage = edge->from_stage;
        v = m->plan->stages.at[stage]
                .graph->outputs.at[edge->from_output]
                .arg.value;
    }
    return v->kind == PST_VALUE_PARAM && v->fqn != NULL ? v : NULL;
}

static enum pst_status record_table(struct groups_maker *m, size_t stage,
                                    const struct pst_node *node)
{
    const int i = pst_schema_arg(node->schema, "weight");
    const struct pst_value *table;

    if (node->op != &pst_op_embedding || i < 0 ||
        node->args[i].kind != PST_ARG_VALUE)
        return PST_OK;
    table = param_of(m, stage, node->args[i].value);
    return table == NULL || pst_map_put(&m->tables, table->fqn, m)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(*node));
}

/* Returns the adapter that has the parameter as one of its matrices; NULL:
 * none. */
static const struct pst_adapter *adapter_with(const struct groups_maker *m,
                                              int param)
{
    const struct pst_adapters *all = pst_plan_adapters(m->plan);

    for (size_t i = 0; i < all->n; i++)
        if (pst_plan_find_param(m->plan, all->at[i].down) == param ||
            pst_plan_find_param(m->plan, all->at[i].up) == param)
            return &all->at[i];
    return NULL;
}

static int64_t ndim_of(const struct pst_plan_param *p)
{
    return (int64_t)p->meta.rank - (p->is_complex ? 1 : 0);
}

struct matrix_reader {
    struct groups_maker *m;
    size_t stage;
    const struct pst_node *node;
};

/* Visits an operand of a node. If it is a matrix, it is the last one so far:
 * stages and their nodes are visited in the order of the uncut graph. Numbers
 * of nodes do not tell the order: conversions and modules that were added later
 * have newer ones. */
static void record_matrix(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct matrix_reader *r = ctx;
    struct groups_maker *m = r->m;
    const struct pst_plan_param *all = m->plan->params.at;
    const struct pst_value *v = param_of(m, r->stage, *slot);
    const int i = v != NULL ? pst_plan_find_param(m->plan, v->fqn) : -1;

    (void)arg;
    if (i < 0 || ndim_of(&all[i]) != 2 || adapter_with(m, i) != NULL ||
        (r->node == m->last_reader && strcmp(all[i].fqn, all[m->last].fqn) < 0))
        return;
    m->last = i;
    m->last_reader = r->node;
}

static enum pst_status record_graphs(struct groups_maker *m)
{
    for (size_t s = 0; s < m->plan->stages.n; s++) {
        const struct pst_graph *graph = m->plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->calls.n; i++) {
            const struct pst_module_call *call = graph->calls.at[i];

            if (call->type[0] != '\0' &&
                !pst_map_put(&m->types, call->path,
                             (void *)class_of(call->type)))
                return pst_diag_nomem(m->diag, sizeof(*call));
        }
        for (size_t i = 0; i < graph->nodes.n; i++) {
            struct matrix_reader reader = {m, s, graph->nodes.at[i]};

            if (record_table(m, s, graph->nodes.at[i]) != PST_OK)
                return PST_ERR_NOMEM;
            pst_node_uses(graph->nodes.at[i], record_matrix, &reader);
        }
    }
    return PST_OK;
}

/* Returns the number of bytes of the name of the module: "h.0" of
 * "h.0.weight". */
static size_t module_of(const char *fqn)
{
    const char *dot = strrchr(fqn, '.');

    return dot != NULL ? (size_t)(dot - fqn) : 0;
}

static bool is_of_type(const struct groups_maker *m, const char *glob,
                       const char *name)
{
    char module[1024];
    const size_t n = module_of(name);
    const char *type;

    if (n >= sizeof(module))
        return false;
    memcpy(module, name, n);
    module[n] = '\0';
    type = pst_map_get(&m->types, module);
    return type != NULL && fnmatch(glob, type, 0) == 0;
}

static bool is_embedding(const struct groups_maker *m, const char *name)
{
    return pst_map_has(&m->tables, name) || is_of_type(m, "*Embedding*", name);
}

/* True for the last matrix, and for the matrices of its adapter. */
static bool is_last(const struct groups_maker *m, const char *name)
{
    const int param = pst_plan_find_param(m->plan, name);
    const struct pst_adapter *adapter = adapter_with(m, param);

    return param >= 0 &&
           m->last == (adapter != NULL
                           ? pst_plan_find_param(m->plan, adapter->weight)
                           : param);
}

static bool is_word(const struct groups_maker *m, enum pst_term_word word,
                    int64_t ndim, const char *name)
{
    switch (word) {
    case PST_TERM_NORMS:
        return is_of_type(m, "*Norm*", name);
    case PST_TERM_BIASES:
        return strstr(name + module_of(name), "bias") != NULL;
    case PST_TERM_EMBEDDINGS:
        return is_embedding(m, name);
    case PST_TERM_LAST_MATRIX:
        return is_last(m, name);
    default:
        return ndim != 2 || is_embedding(m, name) || is_last(m, name);
    }
}

static bool term_holds_for(const struct groups_maker *m,
                           const struct pst_term *term,
                           const struct pst_plan_param *p, const char *name)
{
    const int64_t ndim = ndim_of(p);

    switch (term->kind) {
    case PST_TERM_NDIM:
        return (ndim >= term->least && ndim <= term->most) != term->outside;
    case PST_TERM_TYPE:
        return is_of_type(m, term->glob, name);
    case PST_TERM_WORD:
        return is_word(m, term->word, ndim, name);
    default:
        return pst_pattern_covers(term->glob, name);
    }
}

/* True if the term holds for any name of the parameter. */
static bool term_holds(const struct groups_maker *m,
                       const struct pst_term *term,
                       const struct pst_plan_param *p)
{
    bool ret = term_holds_for(m, term, p, p->fqn);

    for (unsigned k = 0; k < p->n_aliases && !ret; k++)
        ret = term_holds_for(m, term, p, p->aliases[k]);
    return ret;
}

/* Returns the rules that hold for a parameter, a bit for each. */
static uint64_t rules_of(struct groups_maker *m, const struct pst_plan_param *p)
{
    uint64_t mask = 0;

    for (size_t r = 0; r < m->rules.n; r++) {
        struct pst_rule *rule = &m->rules.at[r];
        bool holds = true;

        for (size_t t = 0; t < rule->terms.n && holds; t++) {
            holds = term_holds(m, &rule->terms.at[t], p);
            while (rule->terms.at[t].or_next)
                holds |= term_holds(m, &rule->terms.at[++t], p);
        }
        if (holds)
            mask |= UINT64_C(1) << r;
        rule->holds |= holds;
    }
    return mask;
}

/* --- groups --------------------------------------------------------------- */

/* Sets the options of a rule: first the optimizer, since that sets defaults of
 * other options. */
static enum pst_status apply(const struct groups_maker *m,
                             const struct pst_rule *rule,
                             struct pst_optim_options *options)
{
    enum pst_status status = PST_OK;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < rule->settings.n && status == PST_OK; i++) {
            const struct pst_rule_setting *s = &rule->settings.at[i];

            if ((strcmp(s->name, "optimizer") == 0) == (pass == 0))
                status = pst_optim_set(options, s->name, s->value, m->diag);
            if (strcmp(s->name, "clip-norm") == 0)
                options->clip_rule = (unsigned)(rule - m->rules.at) + 1;
        }
    if (status == PST_OK)
        status = pst_optim_check(options, m->diag);
    if (status != PST_OK)
        return pst_diag_pass(m->diag, m->diag, "--group \"%.200s\": %s",
                             rule->text, m->diag->text);
    return PST_OK;
}

static enum pst_status add_group(struct groups_maker *m, uint64_t mask)
{
    struct pst_group group = {.options = m->options->optim, .mask = mask};
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    for (size_t r = 0; r < m->rules.n && status == PST_OK; r++)
        if (mask >> r & 1) {
            status = apply(m, &m->rules.at[r], &group.options);
            pst_str_addf(&text, "%s%s", text.len > 0 ? "; " : "",
                         m->rules.at[r].text);
        }
    if (status == PST_OK && m->ret->all.n == MAX_GROUPS)
        status = pst_diag_set(m->diag, PST_E_OPTIMIZER_GROUP,
                              "the rules of --group make more than %d groups",
                              MAX_GROUPS);
    if (status == PST_OK) {
        group.rules = pst_arena_strdup(&m->ret->arena, pst_str_text(&text));
        if (text.failed || group.rules == NULL ||
            !pst_vec_push(TAG, &m->ret->all, group))
            status = pst_diag_nomem(m->diag, sizeof(group));
    }
    pst_str_fini(&text);
    return status;
}

static enum pst_status assign(struct groups_maker *m)
{
    enum pst_status status = add_group(m, 0);

    for (size_t i = 0; i < m->plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &m->plan->params.at[i];
        const uint64_t mask = p->kind == PST_VALUE_PARAM ? rules_of(m, p) : 0;
        size_t g = 0;

        while (g < m->ret->all.n && m->ret->all.at[g].mask != mask)
            g++;
        if (g == m->ret->all.n)
            status = add_group(m, mask);
        if (status != PST_OK)
            break;
        m->ret->group_of[i] = (unsigned char)g;
        if (p->kind == PST_VALUE_PARAM && p->requires_grad)
            status = pst_optim_fits(&m->ret->all.at[g].options, p->fqn,
                                    &p->meta, p->is_complex, m->diag);
        if (p->kind == PST_VALUE_PARAM && p->requires_grad) {
            m->ret->all.at[g].n_params++;
            m->ret->all.at[g].n_elements += pst_meta_numel(&p->meta);
        }
    }
    return status;
}

struct names PST_VEC(const char *);

/* Adds the name of a parameter, and of each module around it: "h", "h.0" and
 * "h.0.weight". */
static bool add_names(struct groups_maker *m, const char *fqn,
                      struct names *ret)
{
    for (const char *dot = strchr(fqn, '.'); dot != NULL;
         dot = strchr(dot + 1, '.')) {
        const char *module =
            pst_arena_strndup(&m->ret->arena, fqn, (size_t)(dot - fqn));

        if (module == NULL || !pst_vec_push(TAG, ret, module))
            return false;
    }
    return pst_vec_push(TAG, ret, fqn);
}

/* Lists all names that the text of a term could match: those of parameters and
 * modules, or classes. */
static bool list_names(struct groups_maker *m, const struct pst_term *term,
                       struct names *ret)
{
    bool ok = true;

    for (size_t i = 0; i < m->types.n && term->kind == PST_TERM_TYPE && ok; i++)
        ok = pst_vec_push(TAG, ret, m->types.entries[i].value);
    for (size_t i = 0;
         i < m->plan->params.n && term->kind == PST_TERM_PATTERN && ok; i++) {
        const struct pst_plan_param *p = &m->plan->params.at[i];

        ok = add_names(m, p->fqn, ret);
        for (unsigned k = 0; k < p->n_aliases && ok; k++)
            ok = add_names(m, p->aliases[k], ret);
    }
    return ok;
}

/* Returns the first term of the rule that has a text and holds for no parameter
 * at all; NULL: there is none. */
static const struct pst_term *unmet_term(const struct groups_maker *m,
                                         const struct pst_rule *rule)
{
    for (size_t t = 0; t < rule->terms.n; t++) {
        const struct pst_term *term = &rule->terms.at[t];
        bool holds = term->glob == NULL;

        for (size_t i = 0; i < m->plan->params.n && !holds; i++)
            holds = term_holds(m, term, &m->plan->params.at[i]);
        if (!holds)
            return term;
    }
    return NULL;
}

/* Refuses a rule that holds for no parameter. */
static enum pst_status check_used(struct groups_maker *m)
{
    const struct pst_rule *unused = NULL;
    const struct pst_term *term;
    struct names names = {0};
    int near = -1;

    for (size_t r = 0; r < m->rules.n && unused == NULL; r++)
        if (!m->rules.at[r].holds && !m->rules.at[r].is_default)
            unused = &m->rules.at[r];
    if (unused == NULL)
        return PST_OK;
    term = unmet_term(m, unused);
    if (term != NULL && !list_names(m, term, &names)) {
        pst_vec_fini(&names);
        return pst_diag_nomem(m->diag, sizeof(*names.at));
    }
    if (term != NULL)
        near = pst_nearest(term->glob, names.at, names.n);
    (void)pst_diag_set(m->diag, PST_E_PARAMETER_UNKNOWN,
                       "--group \"%.200s\" holds for no parameter%s%.200s%s",
                       unused->text, near < 0 ? "" : "; the nearest name is \"",
                       near < 0 ? "" : names.at[near], near < 0 ? "" : "\"");
    pst_vec_fini(&names);
    return PST_ERR_INPUT;
}

enum pst_status pst_groups_make(struct pst_groups *ret,
                                const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                struct pst_diag *diag)
{
    struct groups_maker m = {
        .ret = ret, .plan = plan, .options = options, .last = -1, .diag = diag};
    enum pst_status status = PST_OK;

    *ret = (struct pst_groups){0};
    pst_arena_init(&ret->arena, TAG);
    pst_map_init(&m.types, TAG);
    pst_map_init(&m.tables, TAG);
    ret->group_of = pst_arena_alloc(&ret->arena, plan->params.n + 1);
    if (ret->group_of == NULL)
        status = pst_diag_nomem(diag, plan->params.n + 1);
    if (status == PST_OK)
        status = pst_rules_read(
            &m.rules, &ret->arena,
            options->optim.row != NULL ? options->optim.row->others : NULL,
            options->no_decay, options->groups, diag);
    if (status == PST_OK && m.rules.n > 0)
        status = record_graphs(&m);
    if (status == PST_OK)
        status = assign(&m);
    if (status == PST_OK)
        status = check_used(&m);
    pst_rules_fini(&m.rules);
    pst_map_fini(&m.types);
    pst_map_fini(&m.tables);
    return status;
}

void pst_groups_fini(struct pst_groups *groups)
{
    if (groups->group_of == NULL)
        return;
    pst_vec_fini(&groups->all);
    pst_arena_fini(&groups->arena);
    *groups = (struct pst_groups){0};
}
