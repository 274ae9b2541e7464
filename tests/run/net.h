// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_NET_H
#define PENSTOCK_TESTS_RUN_NET_H
/*
 * A small model with everything that makes cuts difficult. Several later stages
 * read some of its values; one value is sent as a permuted view, and of another
 * one a view is sent. The first and the last stage have integer inputs. Two
 * stages have the same parameter, which is not the first one; another parameter
 * is frozen, and another unused. Every microbatch updates a buffer. There are
 * dropout and two user outputs. With PST_NET_CARRY set, all parts also write a
 * second buffer, and the first and the last one read it first.
 */
#include "tests/split/model.h"

#include "stages/run/dump.h"
#include "stages/run/engine.h"

#include <stdio.h>
#include <stdlib.h>

#define NET_CLASSES 5

static const char net_head[] = "graph next_id=40 {\n"
                               "  input %x: f32[4, 6]\n"
                               "  input %t: i64[2, 2]\n"
                               "  input %y: i64[4]\n"
                               "  param %w1 \"a.weight\" grad: f32[8, 6]\n"
                               "  param %b1 \"a.bias\" grad: f32[8]\n"
                               "  param %w2 \"b.weight\" grad: f32[8, 8]\n"
                               "  param %frozen \"f.weight\": f32[8]\n"
                               "  param %unused \"u.weight\" grad: f32[3]\n"
                               "  param %emb \"e.weight\" grad: f32[5, 8]\n"
                               "  buffer %seen \"n.seen\" persistent: f32[8]\n"
                               "+  buffer %tick \"c.tick\": f32[8]\n";

/* Operators between the three positions for markers. Lines with + are used with
 * the buffer c.tick only, those with - without it only. */
static const char *const net_parts[] = {
    "-  %h1: f32[4, 8] = aten.linear.default(%x, %w1, %b1)  # a - F id=0\n"
    "+  %h0: f32[4, 8] = aten.linear.default(%x, %w1, %b1)  # a - F id=0\n"
    "+  %t1: f32[8] = aten.add.Tensor(%tick, %b1)  # c - F id=20\n"
    "+  %h1: f32[4, 8] = aten.add.Tensor(%h0, %t1)  # c - F id=21\n"
    "  %flat: i64[4] view of %t + 0 = aten.view.default(%t, [4])"
    "  # - - F id=1\n"
    "  %tok: f32[4, 8] = aten.embedding.default(%emb, %flat)  # e - F id=2\n"
    "  %h2: f32[4, 8] = aten.add.Tensor(%h1, %tok)  # - - F id=3\n"
    "  %h3: f32[4, 8] = aten.tanh.default(%h2)  # - - F id=4\n"
    "  %p: f32[8, 4]:(1, 8) view of %h3 + 0 = "
    "aten.permute.default(%h3, [1, 0])  # - - F id=5\n",
    "  %q: f32[8, 4] = aten.matmul.default(%w2, %p)  # b - F id=6\n"
    "  %qt: f32[4, 8]:(1, 4) view of %q + 0 = "
    "aten.permute.default(%q, [1, 0])  # b - F id=7\n"
    "+  %t2: f32[8] = aten.mul.Tensor(%t1, %frozen)  # c@1 - F id=22\n",
    "  %s: f32[4, 8] = aten.add.Tensor(%qt, %h3)  # - - F id=8\n"
    "  %m: f32[8] = aten.mean.dim(%s, [0])  # n - F id=9 no_grad\n"
    "  %new: f32[8] = aten.add.Tensor(%seen, %m)  # n - F id=10 no_grad\n"
    "  %g: f32[4, 8] = aten.mul.Tensor(%s, %frozen)  # f - F id=11\n"
    "  %d: f32[4, 8] = aten.dropout.default(%g, 0.25, True)  # - - F id=12\n"
    "-  %g2: f32[4, 8] = aten.add.Tensor(%d, %h1)  # - - F id=13\n"
    "+  %g1: f32[4, 8] = aten.add.Tensor(%d, %h1)  # - - F id=13\n"
    "+  %t3: f32[8] = aten.mean.dim(%g1, [0])  # c@2 - F id=23\n"
    "+  %t4: f32[8] = aten.sub.Tensor(%t2, %t3)  # c@2 - F id=24\n"
    "+  %g2: f32[4, 8] = aten.add.Tensor(%g1, %t4)  # c@2 - F id=25\n",
    "-  %g3: f32[4, 8] = aten.mul.Tensor(%g2, %h3)  # - - F id=14\n"
    "+  %g0: f32[4, 8] = aten.mul.Tensor(%g2, %h3)  # - - F id=14\n"
    "+  %g3: f32[4, 8] = aten.sub.Tensor(%g0, %tick)  # c@3 - F id=26\n"
    "+  %t5: f32[8] = aten.tanh.default(%t4)  # c@3 - F id=27\n"
    "  %tf: f32[4] = aten._to_copy.default(%flat, dtype=f32)  # - - F id=15\n"
    "  %tc: f32[4, 1] view of %tf + 0 = aten.unsqueeze.default(%tf, 1)"
    "  # - - F id=16\n"
    "  %g4: f32[4, 8] = aten.add.Tensor(%g3, %tc)  # - - F id=17\n"
    "  %logits: f32[4, 5] = aten.linear.default(%g4, %emb)  # e@1 - F id=18\n"
    "  %loss: f32[] = aten.cross_entropy_loss.default(%logits, %y)"
    "  # - here.py:7 F id=19\n",
};

static const char net_tail[] = "  output user %loss \"0\"\n"
                               "  output user %logits \"1\"\n"
                               "  output buffer %new -> %seen \"n.seen\"\n"
                               "+  output buffer %t5 -> %tick \"c.tick\"\n"
                               "}\n";

struct net {
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
};

/* True if the model is cut at position `place` (of three) when it has `stages`
 * stages. */
static inline bool net_is_cut(unsigned stages, unsigned place)
{
    static const bool cuts[4][3] = {
        {false, false, false},
        {false, true, false},
        {true, false, true},
        {true, true, true},
    };

    return cuts[stages - 1][place];
}

/* Flags for variants of the model. NET_STILL: no buffer changes, not even with
 * PST_NET_CARRY. NET_TRANSMIT: parameter e.weight is transmitted. */
#define NET_STILL    1u
#define NET_TRANSMIT 2u

static inline bool net_carries(void)
{
    return getenv("PST_NET_CARRY") != NULL;
}

/* Adds the lines that apply: lines of module n or of its buffer unless `still`;
 * lines marked + only with PST_NET_CARRY, lines marked - only without it. */
static inline void net_add(struct pst_str *text, const char *lines, bool still)
{
    const char other = net_carries() && !still ? '-' : '+';

    while (*lines != '\0') {
        const char *end = strchr(lines, '\n') + 1;
        const char *begin = lines + (*lines == '+' || *lines == '-');
        char line[200];

        if (*lines == other) {
            lines = end;
            continue;
        }
        snprintf(line, sizeof(line), "%.*s", (int)(end - begin), begin);
        if (!still ||
            (strstr(line, "# n - F") == NULL && strstr(line, "n.seen") == NULL))
            pst_str_add(text, line);
        lines = end;
    }
}

static inline void net_init_as(struct net *net, unsigned stages, unsigned flags)
{
    static const char *const modules[] = {"a", "b", "c", "e", "f", "n"};
    static const char *const transmit[] = {"e.weight"};
    static const char *const owner[] = {"c.tick=0"};
    struct pst_split_options options = {.transmit = transmit,
                                        .owner = owner,
                                        .n_owner = net_carries() &&
                                                   !(flags & NET_STILL)};
    struct pst_str text = {0};

    options.n_transmit = (flags & NET_TRANSMIT) != 0;
    pst_diag_init(&net->diag);
    pst_str_add(&text, "");
    net_add(&text, net_head, flags & NET_STILL);
    for (unsigned i = 0; i < PST_COUNT(net_parts); i++) {
        net_add(&text, net_parts[i], flags & NET_STILL);
        if (i < 3 && net_is_cut(stages, i))
            pst_str_addf(&text,
                         "  pippy._pipe_split.default()  # - - F id=%u\n",
                         30 + i);
    }
    net_add(&text, net_tail, flags & NET_STILL);
    model_init(&net->model, pst_str_text(&text), modules, PST_COUNT(modules));
    pst_str_fini(&text);
    assert_ok(pst_split(&net->model, &options, &net->plan, &net->diag),
              &net->diag);
    assert_int_equal(net->plan->stages.n, stages);
}

static inline void net_init(struct net *net, unsigned stages)
{
    net_init_as(net, stages, 0);
}

static inline void net_fini(struct net *net)
{
    pst_plan_free(net->plan);
    model_fini(&net->model);
}

/* Data of the net, with an optional fault in one microbatch: no data, a number
 * in input x, or a label that is out of range. */
struct net_data {
    const struct pst_plan *plan;
    int bad_step, bad_microbatch; /* position of the fault; -1: none */
    bool fails;                   /* the fault is that there is no data */
    float x;                      /* if not 0, the fault is this number in x */
};

static inline enum pst_status net_fill(void *ctx, uint64_t step,
                                       unsigned microbatch, unsigned input,
                                       void *dst, struct pst_diag *diag)
{
    const struct net_data *data = ctx;
    const struct pst_plan_input *in = &data->plan->inputs.at[input];
    unsigned seed = (unsigned)step * 1000 + microbatch * 10 + input;
    const bool bad =
        (int)step == data->bad_step && (int)microbatch == data->bad_microbatch;

    if (bad && data->fails)
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT, "no such sample");
    for (int64_t i = 0; i < pst_meta_numel(&in->meta); i++) {
        float x = model_number(&seed);

        if (in->meta.dtype == PST_F32)
            ((float *)dst)[i] = x;
        else
            ((int64_t *)dst)[i] = (seed >> 16) % NET_CLASSES;
    }
    if (bad && data->x == 0 && strcmp(in->name, "y") == 0)
        ((int64_t *)dst)[1] = NET_CLASSES;
    if (bad && data->x != 0 && strcmp(in->name, "x") == 0)
        ((float *)dst)[3] = data->x;
    return PST_OK;
}

static inline struct net_data net_data(const struct net *net)
{
    return (struct net_data){net->plan, -1, -1, false, 0};
}

static inline struct pst_exec_options net_options(const char *schedule,
                                                  unsigned ranks,
                                                  unsigned microbatches,
                                                  const char *optimizer)
{
    struct pst_exec_options ret = {
        .schedule = schedule,
        .ranks = ranks,
        .microbatches = microbatches,
        .train = true,
        .keep_outputs = true,
        .grad_norm = true,
        .threads = 1,
        .side_by_side = getenv("PST_SIDE_BY_SIDE") != NULL,
        .seed = 5,
    };
    struct pst_diag diag;

    if (strcmp(optimizer, "none") == 0)
        return ret;
    assert_ok(pst_optim_defaults(optimizer, &ret.optim, &diag), &diag);
    ret.optim.lr = 0.05;
    ret.optim.clip_norm = 0.7;
    if (strcmp(optimizer, "sgd") == 0)
        ret.optim.momentum = 0.9;
    if (strcmp(optimizer, "rmsprop") == 0) {
        ret.optim.momentum = 0.9;
        ret.optim.centered = true; /* the optimizer has all three states */
    }
    return ret;
}

/* Asserts that all tensors are equal bit by bit, with the same shapes and
 * names. */
static inline void assert_same_dump(const struct pst_dump *a,
                                    const struct pst_dump *b)
{
    size_t n_a, n_b;
    const struct pst_dump_item *items = pst_dump_items(a, &n_a);

    (void)pst_dump_items(b, &n_b);
    assert_int_equal(n_a, n_b);
    for (size_t i = 0; i < n_a; i++) {
        const struct pst_dump_item *match = pst_dump_find(b, items[i].name);

        if (match == NULL || !pst_meta_same(&match->meta, &items[i].meta))
            fail_msg("%s is missing or of another shape", items[i].name);
        if (memcmp(match->data, items[i].data,
                   pst_meta_bytes(&items[i].meta)) != 0)
            fail_msg("%s differs", items[i].name);
    }
}

/* Loads the newest good checkpoint of a folder. */
static inline enum pst_status net_load(struct pst_engine *engine,
                                       const char *dir, uint64_t *ret,
                                       struct pst_diag *diag)
{
    const struct pst_load_choice choice = {.dir = dir,
                                           .step = PST_CHECKPOINT_LATEST};
    struct pst_checkpoint_info info;
    enum pst_status status =
        pst_engine_load(engine, &choice, &info, NULL, diag);

    if (status == PST_OK)
        *ret = info.step;
    return status;
}

#endif
