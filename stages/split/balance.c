// SPDX-License-Identifier: Apache-2.0
/*
 * Cutting by cost, by dynamic programming over all cut points. First the
 * smallest possible largest stage is found; then, among all cuts whose largest
 * stage costs at most SLACK times that, the one that sends the fewest bytes:
 * a few operations more or less are cheaper than a second value on the wire.
 */
#include "stages/ops/op.h"
#include "stages/split/split.h"

#include <math.h>
#include <string.h>

#define TAG   PST_TAG_PLAN
#define SLACK 1.1

struct cell {
    double worst, bytes; /* of the best cut of a prefix */
    unsigned from;       /* where its last stage begins */
};

struct balance {
    const struct pst_graph *graph;
    size_t n; /* nodes */
    unsigned n_stages;
    double limit;       /* no stage may cost more; HUGE_VAL: first search */
    double *flops;      /* prefix sums, n + 1 */
    unsigned *work;     /* prefix counts, n + 1 */
    size_t *last_use;   /* by value id: last node that uses it, 0: none */
    struct cell *cells; /* [stage][prefix length] */
};

bool pst_split_is_work(const struct pst_node *node)
{
    return node->op->n_kernels > 0 &&
           (node->n_outs == 0 || node->outs[0]->base == NULL);
}

struct use_ctx {
    struct balance *b;
    size_t node;
};

static void note_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *use = ctx;

    (void)arg;
    use->b->last_use[(*slot)->id] = use->node;
}

static void measure(struct balance *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct pst_node *node = b->graph->nodes.at[i];
        struct use_ctx use = {b, i};

        b->flops[i + 1] = b->flops[i] + pst_node_flops(node);
        b->work[i + 1] = b->work[i] + pst_split_is_work(node);
        pst_node_uses(node, note_use, &use);
    }
}

/* Bytes of node i's results that are used at or behind `end`. */
static double bytes_beyond(const struct balance *b, size_t i, size_t end)
{
    const struct pst_node *node = b->graph->nodes.at[i];
    double bytes = 0.0;

    for (unsigned k = 0; k < node->n_outs; k++)
        if (b->last_use[node->outs[k]->id] >= end)
            bytes += (double)pst_meta_bytes(&node->outs[k]->meta);
    return bytes;
}

static bool better(const struct balance *b, double worst, double bytes,
                   const struct cell *than)
{
    if (b->limit < HUGE_VAL && bytes != than->bytes)
        return bytes < than->bytes;
    if (worst != than->worst)
        return worst < than->worst;
    return bytes < than->bytes;
}

/* Best cut of the first `end` nodes into k + 1 stages. */
static void solve(struct balance *b, unsigned k, size_t end)
{
    struct cell *cell = &b->cells[k * (b->n + 1) + end];
    double sent = 0.0;

    *cell = (struct cell){HUGE_VAL, HUGE_VAL, 0};
    for (size_t begin = end; begin-- > 0;) {
        const struct cell *prefix =
            k == 0 ? NULL : &b->cells[(k - 1) * (b->n + 1) + begin];
        double cost, worst, bytes;

        sent += bytes_beyond(b, begin, end);
        cost = b->flops[end] - b->flops[begin];
        if (cost > (b->limit < HUGE_VAL ? b->limit : cell->worst))
            break; /* it only grows from here */
        if (b->work[end] == b->work[begin] || (k == 0) != (begin == 0) ||
            (k > 0 && prefix->worst == HUGE_VAL))
            continue;
        worst = k == 0 ? cost : fmax(cost, prefix->worst);
        bytes = sent + (k == 0 ? 0.0 : prefix->bytes);
        if (better(b, worst, bytes, cell))
            *cell = (struct cell){worst, bytes, (unsigned)begin};
    }
}

static void search(struct balance *b)
{
    for (unsigned k = 0; k < b->n_stages; k++)
        for (size_t end = 0; end <= b->n; end++)
            solve(b, k, end);
}

static void assign(struct balance *b)
{
    size_t end = b->n;

    for (unsigned k = b->n_stages; k-- > 0;) {
        const size_t begin = b->cells[k * (b->n + 1) + end].from;

        for (size_t i = begin; i < end; i++)
            b->graph->nodes.at[i]->stage = (int)k;
        end = begin;
    }
}

static unsigned count_work(const struct pst_graph *graph)
{
    unsigned n = 0;

    for (size_t i = 0; i < graph->nodes.n; i++)
        n += pst_split_is_work(graph->nodes.at[i]);
    return n;
}

static enum pst_status too_many(struct pst_splitter *s, unsigned n_stages,
                                unsigned work)
{
    return pst_diag_set(s->diag, PST_ERR_INPUT,
                        "%u stages are too many: the model has %u operators "
                        "that compute, so it can be cut into at most %u",
                        n_stages, work, PST_MAX(work, 1u));
}

static enum pst_status run(struct balance *b, struct pst_splitter *s)
{
    measure(b);
    if (b->work[b->n] < b->n_stages)
        return too_many(s, b->n_stages, b->work[b->n]);
    search(b);
    b->limit = SLACK * b->cells[b->n_stages * (b->n + 1) - 1].worst;
    search(b);
    assign(b);
    s->n_stages = b->n_stages;
    return PST_OK;
}

enum pst_status pst_split_balance(struct pst_splitter *s, unsigned n_stages)
{
    struct balance b = {.graph = s->graph,
                        .n = s->graph->nodes.n,
                        .n_stages = n_stages,
                        .limit = HUGE_VAL};
    enum pst_status status;

    if (n_stages == 1) { /* also of a model that computes nothing */
        for (size_t i = 0; i < b.n; i++)
            b.graph->nodes.at[i]->stage = 0;
        s->n_stages = 1;
        return PST_OK;
    }
    if (n_stages > b.n)
        return too_many(s, n_stages, count_work(b.graph));
    b.flops = pst_calloc(TAG, b.n + 1, sizeof(*b.flops));
    b.work = pst_calloc(TAG, b.n + 1, sizeof(*b.work));
    b.last_use = pst_calloc(TAG, s->graph->values.n + 1, sizeof(*b.last_use));
    b.cells = pst_calloc(TAG, (b.n + 1) * n_stages, sizeof(*b.cells));
    if (b.flops == NULL || b.work == NULL || b.last_use == NULL ||
        b.cells == NULL) {
        status = pst_diag_nomem(s->diag, (b.n + 1) * sizeof(*b.cells));
    } else {
        status = run(&b, s);
    }
    pst_free(b.flops);
    pst_free(b.work);
    pst_free(b.last_use);
    pst_free(b.cells);
    return status;
}
