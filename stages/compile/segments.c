// SPDX-License-Identifier: Apache-2.0
/* Finds the forward nodes that `--recompute` selects. */
#include "stages/base/str.h"
#include "stages/compile/recompute.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/layers.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_EXEC

enum kind { NOTHING, ATTENTION, BLOCK, FULL, MARKED, TWICE, PATTERN };

static const char *const words[] = {"none", "attention", "block",
                                    "full", "marked",    "twice"};

struct word {
    enum kind kind;
    int64_t stage; /* -1: every stage without a word of its own */
    char *text;    /* without "STAGE=" */
};

struct finder {
    const struct pst_plan *plan;
    const struct pst_graph *graph; /* graph of the current stage */
    struct pst_diag *diag;
    struct PST_VEC(struct word) words;
    struct pst_layers layers;
    /* By node index: number of segments that the node is in. */
    unsigned *depth;
    struct pst_segments *out;
};

/* --- words ---------------------------------------------------------------- */

static enum pst_status add_word(struct finder *f, const char *begin,
                                size_t length)
{
    struct word word = {.kind = PATTERN, .stage = -1};
    char *text = pst_arena_strndup(&f->out->arena, begin, length);
    char *equals;

    if (text == NULL)
        return pst_diag_nomem(f->diag, length);
    equals = strchr(text, '=');
    word.text = equals != NULL ? equals + 1 : text;
    if (equals != NULL) {
        *equals = '\0';
        if (!pst_parse_i64(text, &word.stage) || word.stage < 0 ||
            word.stage >= (int64_t)f->plan->stages.n)
            return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                                "--recompute: there is no stage \"%s\", the "
                                "plan has %zu",
                                text, f->plan->stages.n);
    }
    if (word.text[0] == '\0')
        return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                            "--recompute takes none, attention, block, full, "
                            "marked, twice or the names of modules, with "
                            "commas between");
    for (size_t k = 0; k < PST_COUNT(words); k++)
        if (strcmp(word.text, words[k]) == 0)
            word.kind = (enum kind)k;
    if (!pst_vec_push(TAG, &f->words, word))
        return pst_diag_nomem(f->diag, sizeof(word));
    return PST_OK;
}

static enum pst_status read_words(struct finder *f, const char *what)
{
    enum pst_status status = PST_OK;

    while (what != NULL && status == PST_OK) {
        const char *comma = strchr(what, ',');
        const size_t n = comma != NULL ? (size_t)(comma - what) : strlen(what);

        status = add_word(f, what, n);
        what = comma != NULL ? comma + 1 : NULL;
    }
    return status;
}

static bool word_applies(const struct finder *f, const struct word *word,
                         unsigned stage)
{
    if (word->stage >= 0)
        return word->stage == stage;
    for (size_t i = 0; i < f->words.n; i++)
        if (f->words.at[i].stage == stage)
            return false;
    return true;
}

/* --- segments ------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    return x < y ? -1 : x > y;
}

/* True if the segment exists already: two words may select the same nodes. */
static bool is_known(const struct finder *f, const struct pst_segment *segment)
{
    for (size_t i = 0; i < f->out->list.n; i++) {
        const struct pst_segment *have = &f->out->list.at[i];

        if (have->n == segment->n &&
            memcmp(have->nodes, segment->nodes,
                   segment->n * sizeof(*segment->nodes)) == 0)
            return true;
    }
    return false;
}

/* Adds a segment of the nodes with the least nesting depth; deeper ones already
 * belong to another segment. */
static enum pst_status add_segment(struct finder *f, const unsigned *nodes,
                                   unsigned n, bool results)
{
    struct pst_segment segment = {.level = UINT32_MAX, .results = results};

    for (unsigned i = 0; i < n; i++)
        segment.level = PST_MIN(segment.level, f->depth[nodes[i]]);
    segment.nodes =
        pst_arena_calloc(&f->out->arena, n + 1, sizeof(*segment.nodes));
    if (segment.nodes == NULL)
        return pst_diag_nomem(f->diag, n * sizeof(*segment.nodes));
    for (unsigned i = 0; i < n; i++)
        if (f->depth[nodes[i]] == segment.level)
            segment.nodes[segment.n++] = nodes[i];
    qsort(segment.nodes, segment.n, sizeof(*segment.nodes), compare_places);
    if (is_known(f, &segment))
        return PST_OK;
    for (unsigned i = 0; i < segment.n; i++)
        f->depth[segment.nodes[i]]++;
    if (!pst_vec_push(TAG, &f->out->list, segment))
        return pst_diag_nomem(f->diag, sizeof(segment));
    return PST_OK;
}

/* Sets *ret to a module call: the nodes with the same call form one segment.
 * NULL: the word does not select the node. */
typedef enum pst_status (*call_fn)(struct finder *f, const struct word *word,
                                   const struct pst_node *node,
                                   const struct pst_module_call **ret);

/* Sets *ret to the call of the node's layer, or to the outermost call inside
 * the layer if the layer itself is not called. */
static enum pst_status layer_call(struct finder *f, const struct word *word,
                                  const struct pst_node *node,
                                  const struct pst_module_call **ret)
{
    size_t length;
    enum pst_status status =
        pst_layers_of(&f->layers, node->call->path, &length, f->diag);

    (void)word;
    *ret = NULL;
    for (const struct pst_module_call *c = node->call;
         length > 0 && c != NULL && strlen(c->path) >= length; c = c->parent)
        *ret = c;
    return status;
}

static enum pst_status named_call(struct finder *f, const struct word *word,
                                  const struct pst_node *node,
                                  const struct pst_module_call **ret)
{
    (void)f;
    *ret = NULL;
    for (const struct pst_module_call *c = node->call; c->parent != NULL;
         c = c->parent)
        if (fnmatch(word->text, c->path, 0) == 0 ||
            fnmatch(word->text, c->name, 0) == 0)
            *ret = c;
    return PST_OK;
}

/* Contents of one call of a module, by the call's id. */
struct call_content {
    bool attention, softmax;
    unsigned products; /* matmuls of two activations */
};

static void count_params(void *ctx, struct pst_value **slot, unsigned arg)
{
    unsigned *n = ctx;

    (void)arg;
    *n += pst_value_storage(*slot)->kind == PST_VALUE_PARAM;
}

static bool has_param(struct pst_node *node)
{
    unsigned n = 0;

    pst_node_uses(node, count_params, &n);
    return n > 0;
}

static bool is_param_product(struct pst_node *node)
{
    return (node->op->flags & PST_OP_PRODUCT) != 0 && has_param(node);
}

static void record_holds(struct call_content *h, struct pst_node *node)
{
    if (node->op == &pst_op_scaled_dot_product_attention ||
        node->op == &pst_op_sdpa_with_sums)
        h->attention = true;
    if (node->op == &pst_op_softmax_int || node->op == &pst_op__softmax)
        h->softmax = true;
    if ((node->op->flags & PST_OP_PRODUCT) != 0 && !has_param(node))
        h->products++;
}

/* Returns the innermost call around a node that contains an attention (the
 * operator, or a softmax and two matmuls of activations); NULL: none. */
static const struct pst_module_call *attention_of(
    const struct call_content *holds, const struct pst_node *node)
{
    for (const struct pst_module_call *c = node->call; c != NULL; c = c->parent)
        if (holds[c->id].attention ||
            (holds[c->id].softmax && holds[c->id].products >= 2))
            return c;
    return NULL;
}

/* --- by words ------------------------------------------------------------- */

/* Adds one segment per group. call_of: id + 1 of the node's call (or other
 * group), by node index; 0: none. Segments follow the order of calls, outer
 * ones before inner ones. */
static enum pst_status add_groups(struct finder *f, const unsigned *call_of,
                                  size_t n_calls, bool results)
{
    const size_t n = f->graph->nodes.n;
    unsigned *begin = pst_calloc(TAG, n_calls + 2, sizeof(*begin));
    unsigned *nodes = pst_calloc(TAG, n + 1, sizeof(*nodes));
    enum pst_status status = PST_OK;

    if (begin == NULL || nodes == NULL) {
        status = pst_diag_nomem(f->diag, n * sizeof(*nodes));
    } else {
        for (size_t i = 0; i < n; i++)
            begin[call_of[i]]++;
        for (size_t c = 1, at = 0; c <= n_calls; c++) {
            const unsigned count = begin[c];

            begin[c] = (unsigned)at;
            at += count;
        }
        for (size_t i = 0; i < n; i++)
            if (call_of[i] != 0)
                nodes[begin[call_of[i]]++] = (unsigned)i;
        /* begin[c] is now the end of c's nodes. */
        for (size_t c = 1, at = 0; c <= n_calls && status == PST_OK; c++) {
            if (begin[c] > at)
                status = add_segment(f, &nodes[at], begin[c] - (unsigned)at,
                                     results);
            at = PST_MAX(at, begin[c]);
        }
    }
    pst_free(begin);
    pst_free(nodes);
    return status;
}

static bool is_forward(const struct pst_node *node)
{
    return node->phase == PST_PHASE_F;
}

static enum pst_status add_by_call(struct finder *f, const struct word *word,
                                   call_fn fn)
{
    const struct pst_graph *graph = f->graph;
    unsigned *call_of = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*call_of));
    enum pst_status status = PST_OK;

    if (call_of == NULL)
        return pst_diag_nomem(f->diag, graph->nodes.n * sizeof(*call_of));
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        const struct pst_module_call *call = NULL;

        if (is_forward(graph->nodes.at[i]))
            status = fn(f, word, graph->nodes.at[i], &call);
        if (call != NULL)
            call_of[i] = call->id + 1;
    }
    if (status == PST_OK)
        status = add_groups(f, call_of, graph->calls.n, false);
    pst_free(call_of);
    return status;
}

static enum pst_status add_by_attention(struct finder *f)
{
    const struct pst_graph *graph = f->graph;
    struct call_content *holds =
        pst_calloc(TAG, graph->calls.n + 1, sizeof(*holds));
    unsigned *call_of = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*call_of));
    enum pst_status status = PST_OK;

    if (holds == NULL || call_of == NULL) {
        status = pst_diag_nomem(f->diag, graph->nodes.n * sizeof(*call_of));
    } else {
        for (size_t i = 0; i < graph->nodes.n; i++)
            if (is_forward(graph->nodes.at[i]))
                record_holds(&holds[graph->nodes.at[i]->call->id],
                             graph->nodes.at[i]);
        for (size_t i = 0; i < graph->nodes.n; i++) {
            struct pst_node *node = graph->nodes.at[i];
            const struct pst_module_call *call =
                is_forward(node) && !is_param_product(node)
                    ? attention_of(holds, node)
                    : NULL;

            if (call != NULL)
                call_of[i] = call->id + 1;
        }
        status = add_groups(f, call_of, graph->calls.n, true);
    }
    pst_free(holds);
    pst_free(call_of);
    return status;
}

/* Returns the length of the first depth + 1 numbers of a region's name ("1.2"),
 * which name the outer region at that depth; 0: there are fewer numbers. */
static size_t region_length(const char *region, unsigned depth)
{
    const char *at = region;

    while (at != NULL && depth-- > 0) {
        at = strchr(at, '.');
        at += at != NULL;
    }
    return at == NULL ? 0 : (size_t)(at - region) + strcspn(at, ".");
}

/* Adds the regions of one depth, in the order of their first nodes. *ret_any:
 * there are some. */
static enum pst_status add_by_region(struct finder *f, unsigned depth,
                                     bool *ret_any)
{
    const struct pst_graph *graph = f->graph;
    unsigned *group_of = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*group_of));
    unsigned *numbers = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*numbers));
    enum pst_status status = PST_OK;
    struct pst_map groups;

    pst_map_init(&groups, TAG);
    if (group_of == NULL || numbers == NULL)
        status = pst_diag_nomem(f->diag, graph->nodes.n * sizeof(*numbers));
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        const size_t n =
            is_forward(node) ? region_length(node->region, depth) : 0;
        const char *name;
        unsigned *number;

        if (n == 0)
            continue;
        name = pst_arena_strndup(&f->out->arena, node->region, n);
        number = name != NULL ? pst_map_get(&groups, name) : NULL;
        if (name != NULL && number == NULL) {
            number = &numbers[groups.n];
            *number = (unsigned)groups.n + 1;
            if (!pst_map_put(&groups, name, number))
                name = NULL;
        }
        if (name == NULL)
            status = pst_diag_nomem(f->diag, n);
        else
            group_of[i] = *number;
    }
    *ret_any = groups.n > 0;
    if (status == PST_OK)
        status = add_groups(f, group_of, groups.n, false);
    pst_map_fini(&groups);
    pst_free(group_of);
    pst_free(numbers);
    return status;
}

/* Adds marked regions, outer ones first. */
static enum pst_status add_by_mark(struct finder *f)
{
    enum pst_status status = PST_OK;
    bool any = true;

    for (unsigned depth = 0; any && status == PST_OK; depth++)
        status = add_by_region(f, depth, &any);
    return status;
}

static enum pst_status add_by_stage(struct finder *f)
{
    const struct pst_graph *graph = f->graph;
    unsigned *nodes = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*nodes));
    unsigned n = 0;
    enum pst_status status;

    if (nodes == NULL)
        return pst_diag_nomem(f->diag, graph->nodes.n * sizeof(*nodes));
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (is_forward(graph->nodes.at[i]))
            nodes[n++] = (unsigned)i;
    status = n > 0 ? add_segment(f, nodes, n, false) : PST_OK;
    pst_free(nodes);
    return status;
}

static enum pst_status add_by_word(struct finder *f, const struct word *word)
{
    switch (word->kind) {
    case NOTHING:
    case TWICE:
        return PST_OK;
    case ATTENTION:
        return add_by_attention(f);
    case BLOCK:
        return add_by_call(f, word, layer_call);
    case FULL:
        return add_by_stage(f);
    case MARKED:
        return add_by_mark(f);
    case PATTERN:
        return add_by_call(f, word, named_call);
    }
    return PST_OK;
}

/* Finds the segments of all words, outer ones first so that inner ones get
 * their nesting depth. */
static enum pst_status find_segments(struct finder *f, unsigned stage,
                                     const struct pst_graph *graph,
                                     const struct word *only)
{
    static const enum kind order[] = {FULL, BLOCK, MARKED, PATTERN, ATTENTION};
    enum pst_status status = PST_OK;

    f->graph = graph;
    f->depth = pst_calloc(TAG, graph->nodes.n + 1, sizeof(*f->depth));
    if (f->depth == NULL)
        return pst_diag_nomem(f->diag, graph->nodes.n * sizeof(*f->depth));
    for (size_t k = 0; k < PST_COUNT(order) && status == PST_OK; k++)
        for (size_t i = 0; i < f->words.n && status == PST_OK; i++)
            if (f->words.at[i].kind == order[k] &&
                (only != NULL ? only == &f->words.at[i]
                              : word_applies(f, &f->words.at[i], stage)))
                status = add_by_word(f, &f->words.at[i]);
    pst_free(f->depth);
    return status;
}

/* --- interface ------------------------------------------------------------ */

static enum pst_status finder_init(struct finder *f,
                                   const struct pst_plan *plan,
                                   const char *what, struct pst_segments *out,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    *out = (struct pst_segments){0};
    pst_arena_init(&out->arena, TAG);
    *f = (struct finder){.plan = plan, .out = out, .diag = diag};
    pst_layers_init(&f->layers);
    status = read_words(f, what);
    for (size_t s = 0; s < plan->stages.n && f->words.n > 0 && status == PST_OK;
         s++)
        status = pst_layers_add(&f->layers, plan->stages.at[s].graph, diag);
    return status;
}

static void finder_fini(struct finder *f)
{
    pst_layers_fini(&f->layers);
    pst_vec_fini(&f->words);
}

struct names PST_VEC(const char *);

static enum pst_status add_names(const struct pst_graph *graph,
                                 struct names *names)
{
    for (size_t i = 1; i < graph->calls.n; i++)
        if (!pst_vec_push(TAG, names, graph->calls.at[i]->name))
            return PST_ERR_NOMEM;
    return PST_OK;
}

static enum pst_status report_no_match(const struct finder *f,
                                       const struct word *word)
{
    struct names names = {0};
    enum pst_status status = PST_OK;
    int near = -1;

    if (word->kind == ATTENTION)
        return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                            "--recompute attention: no module of the model "
                            "holds an attention");
    if (word->kind == BLOCK)
        return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                            "--recompute block: the model has no list of "
                            "layers (modules named \"layers.0\", \"layers.1\" "
                            "...); name its modules");
    if (word->kind == MARKED)
        return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                            "--recompute marked: the file has no region of "
                            "torch.utils.checkpoint (docs/memory.md says when "
                            "torch.export writes them); name its modules");
    for (size_t k = 0; k < PST_COUNT(words) && status == PST_OK; k++)
        if (!pst_vec_push(TAG, &names, words[k]))
            status = PST_ERR_NOMEM;
    for (size_t s = 0; s < f->plan->stages.n && status == PST_OK; s++)
        status = add_names(f->plan->stages.at[s].graph, &names);
    if (status == PST_OK)
        near = pst_nearest(word->text, names.at, names.n);
    if (status != PST_OK)
        status = pst_diag_nomem(f->diag, names.n * sizeof(*names.at));
    else
        status = pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                              "--recompute: no module of the model is called "
                              "\"%s\"%s%s%s",
                              word->text, near >= 0 ? "; did you mean \"" : "",
                              near >= 0 ? names.at[near] : "",
                              near >= 0 ? "\"?" : "");
    pst_vec_fini(&names);
    return status;
}

/* Reports that a word with a stage matches nothing there, although it would
 * match in another stage. */
static enum pst_status report_other_stage(const struct finder *f,
                                          const struct word *word,
                                          unsigned stage)
{
    if (word->stage >= 0)
        return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                            "--recompute %d=%s: that is in stage %u, and not "
                            "in stage %d",
                            (int)word->stage, word->text, stage,
                            (int)word->stage);
    return pst_diag_set(f->diag, PST_E_RECOMPUTE_WORDS,
                        "--recompute %s: that is in stage %u, which has words "
                        "of its own, so that those without a stage do not "
                        "apply to it: say %u=%s",
                        word->text, stage, stage, word->text);
}

static enum pst_status check_word(struct finder *f, const struct word *word)
{
    const struct pst_plan *plan = f->plan;
    enum pst_status status = PST_OK;

    f->out->list.n = 0;
    for (unsigned s = 0; s < plan->stages.n && status == PST_OK; s++)
        if (word_applies(f, word, s))
            status = find_segments(f, s, plan->stages.at[s].graph, word);
    if (status != PST_OK || f->out->list.n > 0 || word->kind == NOTHING ||
        word->kind == TWICE)
        return status;
    for (unsigned s = 0; s < plan->stages.n && status == PST_OK; s++) {
        status = find_segments(f, s, plan->stages.at[s].graph, word);
        if (status == PST_OK && f->out->list.n > 0)
            return report_other_stage(f, word, s);
    }
    return status == PST_OK ? report_no_match(f, word) : status;
}

enum pst_status pst_recompute_check(const struct pst_plan *plan,
                                    const char *what, struct pst_diag *diag)
{
    struct pst_segments found;
    struct finder f;
    enum pst_status status = finder_init(&f, plan, what, &found, diag);

    for (size_t i = 0; i < f.words.n && status == PST_OK; i++)
        status = check_word(&f, &f.words.at[i]);
    finder_fini(&f);
    pst_segments_fini(&found);
    return status;
}

const char *pst_recompute_default(const struct pst_plan *plan)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->nodes.n; i++)
            if (graph->nodes.at[i]->region != NULL)
                return words[MARKED];
    }
    return NULL;
}

enum pst_status pst_segments_find(const struct pst_plan *plan, unsigned stage,
                                  const char *what,
                                  const struct pst_graph *graph,
                                  struct pst_segments *ret,
                                  struct pst_diag *diag)
{
    struct finder f;
    enum pst_status status = finder_init(&f, plan, what, ret, diag);

    if (status == PST_OK)
        status = find_segments(&f, stage, graph, NULL);
    for (size_t i = 0; i < f.words.n; i++)
        ret->twice = ret->twice || (f.words.at[i].kind == TWICE &&
                                    word_applies(&f, &f.words.at[i], stage));
    finder_fini(&f);
    return status;
}

void pst_segments_fini(struct pst_segments *segments)
{
    pst_vec_fini(&segments->list);
    pst_arena_fini(&segments->arena);
}
