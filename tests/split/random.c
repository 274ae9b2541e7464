// SPDX-License-Identifier: Apache-2.0
#include "tests/split/random.h"

#include <stdio.h>
#include <string.h>

#define MAX_VALUES 128
#define N_WEIGHTS  6

/* Kinds of values, in this order: f32[4, 8], bool[4, 8], i64[4], f32[], i64[],
 * f32[8, 4]. */
enum kind { WIDE, MASK, IDS, SCALAR, COUNT, TALL, N_KINDS };

struct writer {
    struct random_model *m;
    unsigned seed;
    struct {
        enum kind kind;
        char name[16];
    } values[MAX_VALUES];
    unsigned n_values, calls[N_WEIGHTS];
    /* hub: value with many readers; sum: of all values so far */
    char hub[16], sum[16];
    /* n_ticks: updates of "tick"; chance: random state for them */
    unsigned n_ticks, chance;
};

unsigned random_draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)(*seed >> 4) * n) >> 28);
}

static unsigned draw(struct writer *w, unsigned n)
{
    return random_draw(&w->seed, n);
}

/* Picks a value of that kind: one of the newest, one of two with many readers,
 * or any. There is always one. */
static const char *pick(struct writer *w, enum kind kind)
{
    const unsigned how = draw(w, 4);
    unsigned n = 0, k;

    for (unsigned i = 0; i < w->n_values; i++)
        n += w->values[i].kind == kind;
    if (how < 2 && n > 3)
        k = n - 1 - draw(w, 3);
    else if (how == 2 && n > 3)
        k = 1 + draw(w, 2);
    else
        k = draw(w, n);
    for (unsigned i = 0;; i++)
        if (w->values[i].kind == kind && k-- == 0)
            return w->values[i].name;
}

static void add_value(struct writer *w, enum kind kind, const char *name)
{
    w->values[w->n_values].kind = kind;
    snprintf(w->values[w->n_values].name, sizeof(w->values[0].name), "%s",
             name);
    w->n_values++;
}

/* Begins the next node; the caller appends operator and arguments. */
static struct pst_str *begin(struct writer *w, enum kind kind)
{
    char name[16];

    snprintf(name, sizeof(name), "v%u", w->m->n_nodes);
    pst_str_addf(&w->m->text, "  %%%s = ", name);
    add_value(w, kind, name);
    return &w->m->text;
}

static void end(struct writer *w, const char *module, unsigned call)
{
    pst_str_addf(&w->m->text, "  # %s@%u - F id=%u\n", module, call,
                 w->m->n_nodes++);
}

/* --- operators ---------------------------------------------------------- */

/* Adds a call of a module with a weight; modules are called repeatedly, and two
 * of them are tied. */
static void add_linear(struct writer *w)
{
    const unsigned k = draw(w, N_WEIGHTS), weight = k == 5 ? 4 : k;
    char x[16], module[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    snprintf(module, sizeof(module), "m.%u", k);
    pst_str_addf(begin(w, WIDE), "aten.linear.default(%%%s, %%w%u%s)", x,
                 weight, draw(w, 2) ? ", %b" : "");
    end(w, module, w->calls[k]++);
}

static void add_unary(struct writer *w)
{
    static const char *const ops[] = {"tanh", "sigmoid", "neg", "alias",
                                      "clone"};
    char x[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    if (draw(w, 6) == 0)
        pst_str_addf(begin(w, WIDE), "aten.dropout.default(%%%s, 0.25, True)",
                     x);
    else
        pst_str_addf(begin(w, WIDE), "aten.%s.default(%%%s)",
                     ops[draw(w, PST_COUNT(ops))], x);
    end(w, "u", 0);
}

static void add_binary(struct writer *w)
{
    static const enum kind others[] = {WIDE, WIDE, WIDE, SCALAR, COUNT};
    const enum kind kind = others[draw(w, PST_COUNT(others))];
    char x[16], y[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    snprintf(y, sizeof(y), "%s", pick(w, kind));
    pst_str_addf(begin(w, WIDE), "aten.%s.Tensor(%%%s, %%%s)",
                 draw(w, 2) ? "add" : "mul", x, y);
    end(w, "a", 0);
}

static void add_side(struct writer *w)
{
    char x[16], y[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    snprintf(y, sizeof(y), "%s", pick(w, IDS));
    switch (draw(w, 5)) {
    case 0:
        pst_str_addf(begin(w, MASK), "aten.gt.Tensor(%%%s, %%zero)", x);
        break;
    case 1:
        pst_str_addf(begin(w, IDS), "aten.maximum.default(%%%s, %%%s)", y,
                     pick(w, IDS));
        break;
    case 2:
        pst_str_addf(begin(w, SCALAR), "aten.mean.default(%%%s)", x);
        break;
    case 3:
        pst_str_addf(begin(w, COUNT), "aten.max.default(%%%s)", y);
        break;
    default:
        pst_str_addf(begin(w, TALL), "aten.t.default(%%%s)", x);
    }
    end(w, "s", 0);
}

/* Adds a node of the main kind that reads a value of another kind. */
static void add_return(struct writer *w)
{
    char x[16], y[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    snprintf(y, sizeof(y), "%s", pick(w, WIDE));
    switch (draw(w, 4)) {
    case 0:
        pst_str_addf(begin(w, WIDE), "aten.where.self(%%%s, %%%s, %%%s)",
                     pick(w, MASK), x, y);
        break;
    case 1:
        pst_str_addf(begin(w, WIDE), "aten.embedding.default(%%w0, %%%s)",
                     pick(w, IDS));
        break;
    case 2:
        pst_str_addf(begin(w, WIDE), "aten.t.default(%%%s)", pick(w, TALL));
        break;
    default:
        pst_str_addf(begin(w, WIDE), "aten.mul.Tensor(%%%s, %%scale)", x);
    }
    end(w, "r", 0);
}

/* Adds the newest value to the loss, multiplied by a value with many readers,
 * whose gradient gets terms from most stages. */
static void add_to_sum(struct writer *w)
{
    char x[16], product[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    pst_str_addf(begin(w, WIDE), "aten.mul.Tensor(%%%s, %%%s)", x, w->hub);
    snprintf(product, sizeof(product), "v%u", w->m->n_nodes);
    end(w, "sum", w->m->n_nodes);
    pst_str_addf(begin(w, WIDE), "aten.add.Tensor(%%%s, %%%s)", w->sum,
                 product);
    snprintf(w->sum, sizeof(w->sum), "v%u", w->m->n_nodes);
    end(w, "sum", w->m->n_nodes);
}

/* Adds the node that computes the new value of the buffer n.seen. */
static void change_buffer(struct writer *w)
{
    char x[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    pst_str_addf(&w->m->text,
                 "  %%new = aten.add.Tensor(%%seen, %%%s)  # n@0 - F id=%u "
                 "no_grad\n",
                 x, 200);
}

/* Adds a new value of the buffer "tick", which may change repeatedly, and a
 * reader of its first or its newest value. */
static void change_tick(struct writer *w)
{
    const unsigned n = w->n_ticks++;
    char x[16];

    snprintf(x, sizeof(x), "%s", pick(w, WIDE));
    pst_str_addf(
        &w->m->text,
        "  %%m%u = aten.mean.dim(%%%s, [0])  # k@%u - F id=%u\n"
        "  %%k%u = aten.sub.Tensor(%%tick%u, %%m%u)  # k@%u - F id=%u\n"
        "  %%tick%u = aten.tanh.default(%%k%u)  # k@%u - F id=%u\n",
        n, x, n, 240 + 3 * n, n, n, n, n, 241 + 3 * n, n + 1, n, n,
        242 + 3 * n);
    pst_str_addf(begin(w, WIDE), "aten.mul.Tensor(%%%s, %%tick%u)", x,
                 draw(w, 2) ? n + 1 : 0);
    end(w, "k", n);
}

static void add_node(struct writer *w)
{
    switch (draw(w, 8)) {
    case 0:
    case 1:
    case 2:
        add_linear(w);
        break;
    case 3:
        add_unary(w);
        break;
    case 4:
        add_binary(w);
        break;
    case 5:
    case 6:
        add_side(w);
        break;
    default:
        add_return(w);
    }
}

/* --- the whole ---------------------------------------------------------- */

static void add_head(struct writer *w)
{
    static const char *const given[] = {
        [WIDE] = "x",    [MASK] = "m",   [IDS] = "ids",
        [SCALAR] = "s0", [COUNT] = "c0", [TALL] = "t0"};

    pst_str_add(&w->m->text, "graph next_id=300 {\n"
                             "  input %x: f32[4, 8]\n"
                             "  input %ids: i64[4]\n"
                             "  input %y: f32[4, 8]\n"
                             "  param %b \"b\" grad: f32[8]\n"
                             "  param %frozen \"frozen\": f32[8]\n"
                             "  buffer %seen \"n.seen\" persistent: f32[4, 8]\n"
                             "  buffer %scale \"scale\": f32[8]\n"
                             "  buffer %tick0 \"tick\": f32[8]\n"
                             "  const %zero \"zero\": f32[4, 8]\n");
    for (unsigned i = 0; i < N_WEIGHTS - 1; i++)
        pst_str_addf(&w->m->text,
                     "  param %%w%u \"m.%u.weight\" grad: f32[8, 8]\n", i, i);
    pst_str_add(&w->m->text, "  %m = aten.lt.Tensor(%x, %y)  # - - F id=201\n"
                             "  %s0 = aten.mean.default(%y)  # - - F id=202\n"
                             "  %c0 = aten.max.default(%ids)  # - - F id=203\n"
                             "  %t0 = aten.t.default(%x)  # - - F id=204\n");
    for (unsigned k = 0; k < N_KINDS; k++)
        add_value(w, k, given[k]);
}

/* Adds scalars of other stages to the loss, so that a last stage may consist of
 * additions only; returns the last sum. */
static unsigned add_terms(struct writer *w, bool markers)
{
    const unsigned n = random_draw(&w->chance, 4);

    for (unsigned i = 0; i < n; i++) {
        unsigned k = random_draw(&w->chance, w->n_values);

        while (w->values[k].kind != SCALAR)
            k = (k + 1) % w->n_values;
        if (random_draw(&w->chance, 2) && w->m->n_cuts < 9) {
            if (markers)
                pst_str_addf(&w->m->text,
                             "  pippy._pipe_split.default()  # - - F id=%u\n",
                             220 + w->m->n_cuts);
            w->m->n_cuts++;
        }
        pst_str_addf(&w->m->text,
                     "  %%loss%u = aten.add.Tensor(%%loss%u, %%%s)  # - - F "
                     "id=%u\n",
                     i + 1, i, w->values[k].name, 214 + i);
    }
    return n;
}

static void add_tail(struct writer *w, bool markers)
{
    pst_str_addf(&w->m->text,
                 "  %%last = aten.mul.Tensor(%%%s, %%frozen)  # - - F id=210\n"
                 "  %%mse = aten.mse_loss.default(%%last, %%y)  # - - F "
                 "id=211\n"
                 "  %%part = aten.mean.default(%%%s)  # - - F id=212\n"
                 "  %%loss0 = aten.add.Tensor(%%mse, %%part)  # - - F id=213\n",
                 pick(w, WIDE), w->sum);
    pst_str_addf(&w->m->text, "  output user %%loss%u \"loss\"\n",
                 add_terms(w, markers));
    for (unsigned i = 0; i < 4; i++)
        pst_str_addf(&w->m->text, "  output user %%%s \"o.%u\"\n",
                     w->values[draw(w, w->n_values)].name, i);
    pst_str_add(&w->m->text, "  output user None \"none\"\n"
                             "  output buffer %new -> %seen \"\"\n");
    if (w->n_ticks > 0)
        pst_str_addf(&w->m->text, "  output buffer %%tick%u -> %%tick0 \"\"\n",
                     w->n_ticks);
    pst_str_add(&w->m->text, "}\n");
}

void random_model_init(struct random_model *m, unsigned seed, bool markers)
{
    struct writer w = {
        .m = m, .seed = seed * 2654435761u + 1, .chance = seed * 69069u + 5};
    unsigned places = seed * 40503u + 7, n, rate;

    memset(m, 0, sizeof(*m));
    n = 6 + draw(&w, 34);
    rate = 3 + random_draw(&places, 12);
    add_head(&w);
    for (unsigned i = 0; i < n; i++) {
        add_node(&w);
        if (i == 1) {
            add_linear(&w);
            snprintf(w.hub, sizeof(w.hub), "v%u", m->n_nodes - 1);
            snprintf(w.sum, sizeof(w.sum), "%s", w.hub);
        }
        if (i % 4 == 3)
            add_to_sum(&w);
        if (i == n / 2)
            change_buffer(&w);
        if (random_draw(&w.chance, n) < 3 && w.n_ticks < 5)
            change_tick(&w);
        /* Markers have random numbers of their own, so that the model is the
         * same without them. */
        if (random_draw(&places, rate) == 0 && m->n_cuts < 9) {
            if (markers)
                pst_str_addf(&m->text,
                             "  pippy._pipe_split.default()  # - - F id=%u\n",
                             220 + m->n_cuts);
            m->n_cuts++;
        }
    }
    add_tail(&w, markers);
    m->seed = w.seed;
}

void random_model_fini(struct random_model *m)
{
    pst_str_fini(&m->text);
}
