// SPDX-License-Identifier: Apache-2.0
/*
 * Chains of elementwise nodes (stages/compile/chains/): random graphs have the
 * same bits with and without them, for all cuts, schedules and threads, on the
 * device that PENSTOCK_DEVICE names, else on the CPU.
 */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/chain.h"
#include "tests/run/job.h"
#include "tests/sanitized.h"

#define VALUES 40

/* A random graph of tensors [rows, cols]. */
struct text {
    struct pst_str out;
    unsigned seed, n_nodes, n_values;
    int64_t rows, cols;
    const char *dtype;
    unsigned values[VALUES]; /* numbers in the names of values of full size */
    unsigned nodes;          /* elementwise nodes to be made */
};

static unsigned draw(struct text *t, unsigned n)
{
    (void)model_number(&t->seed);
    return (t->seed >> 10) % n;
}

static unsigned any_value(struct text *t)
{
    /* mostly a new one, so that there are chains */
    return draw(t, 3) > 0 ? t->values[t->n_values - 1]
                          : t->values[draw(t, t->n_values)];
}

/* Ends the line of a node; a third of them is in each module. */
static void end_node(struct text *t)
{
    const unsigned module = PST_MIN(3 * t->n_values / (t->nodes + 1), 2);

    pst_str_addf(&t->out, " # m%u - F id=%u\n", module, t->n_nodes++);
}

/* Begins the line of a node whose result has the full size. */
static void begin_node(struct text *t, const char *dtype)
{
    pst_str_addf(&t->out, "  %%v%u: %s[%lld, %lld] = ", t->n_nodes, dtype,
                 (long long)t->rows, (long long)t->cols);
}

static void add_value(struct text *t)
{
    t->values[t->n_values++] = t->n_nodes;
}

static void add_unary(struct text *t)
{
    static const char *const ops[] = {
        "tanh.default(%%v%u)",
        "sigmoid.default(%%v%u)",
        "silu.default(%%v%u)",
        "gelu.default(%%v%u)",
        "neg.default(%%v%u)",
        "relu.default(%%v%u)",
        "mul.Scalar(%%v%u, 0.7)",
        "add.Scalar(%%v%u, 0.3)",
        "gelu.default(%%v%u, \"tanh\")",
        "rsub.Scalar(%%v%u, 1)",
        "tanh.default(%%v%u)",
        "div.Scalar(%%v%u, 3.0)",
        "pow.Tensor_Scalar(%%v%u, 3)",
        "pow.Tensor_Scalar(%%v%u, 2)",
    };
    const char *op = ops[draw(t, PST_COUNT(ops))];
    const unsigned x = any_value(t);

    begin_node(t, t->dtype);
    pst_str_add(&t->out, "aten.");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    pst_str_addf(&t->out, op, x);
#pragma GCC diagnostic pop
    add_value(t);
    end_node(t);
}

static void add_binary(struct text *t)
{
    static const char *const ops[] = {"mul.Tensor", "add.Tensor", "sub.Tensor",
                                      "maximum.default"};
    const char *op = ops[draw(t, PST_COUNT(ops))];
    const unsigned x = any_value(t), y = any_value(t);

    begin_node(t, t->dtype);
    pst_str_addf(&t->out, "aten.%s(%%v%u, %%v%u)", op, x, y);
    add_value(t);
    end_node(t);
}

/* Multiplies by a vector, a column, a number, also one of another dtype, or a
 * part of wider rows. */
static void add_broadcast(struct text *t)
{
    static const char *const others[] = {"tail", "column", "number", "pn",
                                         "part"};
    const char *other = others[draw(t, PST_COUNT(others))];
    const unsigned x = any_value(t);

    begin_node(t, t->dtype);
    pst_str_addf(&t->out, "aten.%s.Tensor(%%v%u, %%%s)",
                 draw(t, 2) ? "mul" : "add", x, other);
    add_value(t);
    end_node(t);
}

static void add_choice(struct text *t)
{
    const unsigned x = any_value(t), y = any_value(t), z = any_value(t);

    begin_node(t, "bool");
    pst_str_addf(&t->out, "aten.gt.Tensor(%%v%u, %%v%u)", x, y);
    end_node(t);
    begin_node(t, "bool");
    pst_str_addf(&t->out, "aten.le.Scalar(%%v%u, 0.9)", z);
    end_node(t);
    begin_node(t, "bool");
    pst_str_addf(&t->out, "aten.logical_and.default(%%v%u, %%v%u)",
                 t->n_nodes - 1, t->n_nodes - 2);
    end_node(t);
    begin_node(t, t->dtype);
    pst_str_addf(&t->out, "aten.where.self(%%v%u, %%v%u, %%v%u)",
                 t->n_nodes - 1, y, z);
    add_value(t);
    end_node(t);
}

/* No part of a chain. */
static void add_other(struct text *t)
{
    const unsigned x = any_value(t);

    begin_node(t, t->dtype);
    pst_str_addf(&t->out, "aten._softmax.default(%%v%u, -1, False)", x);
    add_value(t);
    end_node(t);
}

static void add_nodes(struct text *t)
{
    while (t->n_values < t->nodes) {
        const unsigned kind = draw(t, 10);

        if (kind < 3)
            add_unary(t);
        else if (kind < 6)
            add_binary(t);
        else if (kind < 8)
            add_broadcast(t);
        else if (kind < 9)
            add_choice(t);
        else
            add_other(t);
    }
}

/* Begins the line of an operand in the dtype of the graph. */
static void add_operand(struct text *t, const char *name, const char *size,
                        const char *from)
{
    pst_str_addf(&t->out,
                 "  %%%s: %s[%s] = aten._to_copy.default(%%%s, dtype=%s) # m0 "
                 "- F id=%u\n",
                 name, t->dtype, size, from, t->dtype, t->n_nodes++);
}

static void make_text(struct text *t)
{
    const long long rows = t->rows, cols = t->cols;
    char size[64], vector[32], column[32];

    (void)snprintf(size, sizeof(size), "%lld, %lld", rows, cols);
    (void)snprintf(vector, sizeof(vector), "%lld", cols);
    (void)snprintf(column, sizeof(column), "%lld, 1", rows);
    pst_str_addf(&t->out,
                 "graph next_id=200 {\n"
                 "  input %%x: f32[%s]\n"
                 "  param %%pw \"w\" grad: f32[%s]\n"
                 "  param %%pt \"t\" grad: f32[%s]\n"
                 "  param %%pc \"c\" grad: f32[%s]\n"
                 "  param %%pn \"n\" grad: f32[]\n"
                 "  param %%pp \"p\" grad: f32[%lld, %lld]\n",
                 size, size, vector, column, rows, 2 * cols);
    add_operand(t, "tail", vector, "pt");
    add_operand(t, "column", column, "pc");
    add_operand(t, "number", "", "pn");
    pst_str_addf(&t->out,
                 "  %%wide: %s[%lld, %lld] = aten._to_copy.default(%%pp, "
                 "dtype=%s) # m0 - F id=%u\n",
                 t->dtype, rows, 2 * cols, t->dtype, t->n_nodes);
    t->n_nodes++;
    pst_str_addf(&t->out,
                 "  %%part: %s[%s]:(%lld, 1) view of %%wide + %lld = "
                 "aten.slice.Tensor(%%wide, 1, %lld, %lld) # m0 - F id=%u\n",
                 t->dtype, size, 2 * cols, cols, cols, 2 * cols, t->n_nodes);
    t->n_nodes++;
    add_operand(t, "w", size, "pw");
    add_value(t);
    add_operand(t, "xx", size, "x");
    pst_str_addf(&t->out,
                 "  %%v%u: %s[%s] = aten.mul.Tensor(%%xx, %%w) # m0 - F "
                 "id=%u\n",
                 t->n_nodes, t->dtype, size, t->n_nodes);
    t->values[0] = t->n_nodes++;
    add_nodes(t);
    pst_str_addf(&t->out,
                 "  %%f: f32[%s] = aten._to_copy.default(%%v%u, dtype=f32) # "
                 "m2 - F id=%u\n"
                 "  %%loss: f32[] = aten.mean.default(%%f) # m2 - F id=%u\n"
                 "  output user %%loss \"0\"\n"
                 "  output user %%v%u \"1\"\n"
                 "}\n",
                 size, t->values[t->n_values - 1], t->n_nodes, t->n_nodes + 1,
                 t->values[draw(t, t->n_values)]);
}

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct text *t = ctx;
    unsigned seed = (unsigned)step * 1000 + microbatch * 10 + input;

    (void)diag;
    for (int64_t i = 0; i < t->rows * t->cols; i++)
        ((float *)dst)[i] = model_number(&seed);
    return PST_OK;
}

/* --- jobs ----------------------------------------------------------------- */

static const char *const modules[] = {"m0", "m1", "m2"};

/* Runs a step of the graph, cut n times. */
static struct pst_dump *run_text(struct text *t, unsigned n,
                                 const struct pst_exec_options *options)
{
    const struct pst_split_options cut = {.stages = n + 1};
    struct pst_step_result result;
    struct pst_dump *dump;
    struct job job;
    char ranks[16];

    pst_diag_init(&job.net.diag);
    model_init(&job.net.model, pst_str_text(&t->out), modules, 3);
    assert_ok(pst_split(&job.net.model, &cut, &job.net.plan, &job.net.diag),
              &job.net.diag);
    (void)snprintf(ranks, sizeof(ranks), "%u", options->ranks);
    assert_ok(pst_transport_self.open(ranks, &job.transport, &job.net.diag),
              &job.net.diag);
    assert_ok(pst_engine_new(job.net.plan, job.transport, options, &job.engine,
                             &job.net.diag),
              &job.net.diag);
    assert_ok(
        pst_engine_step(job.engine, 0, fill, t, 0, &result, &job.net.diag),
        &job.net.diag);
    dump = job_dump(&job);
    job_fini(&job);
    return dump;
}

/* Returns the parts of a chain, whose kernel must be the device's own. */
static unsigned parts_of(const struct pst_node *node,
                         const struct pst_program_options *options,
                         struct pst_diag *diag)
{
    PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
    PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_kernel *kernel;

    assert_ok(pst_node_kernel(node, options, &call, &kernel, diag), diag);
    assert_int_equal((kernel->flags & PST_K_QUEUED) != 0,
                     options->device != &pst_device_cpu);
    return node->chain->n_parts;
}

/* Returns the parts of all chains of the uncut graph. */
static unsigned count_parts(struct text *t)
{
    const struct pst_program_options options = {.train = true,
                                                .device = pst_device_default(),
                                                .isa = PST_ISA_ANY,
                                                .threads = 1};
    const struct pst_split_options whole = {.stages = 1};
    struct pst_program *program;
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
    unsigned ret = 0;

    pst_diag_init(&diag);
    model_init(&model, pst_str_text(&t->out), modules, 3);
    assert_ok(pst_split(&model, &whole, &plan, &diag), &diag);
    assert_ok(pst_program_new(plan, 0, &options, &program, &diag), &diag);
    assert_ok(pst_program_compile(program, NULL, NULL, "chains", &diag), &diag);
    for (size_t i = 0; i < program->graph->nodes.n; i++)
        if (program->graph->nodes.at[i]->op == &pst_op_chain)
            ret += parts_of(program->graph->nodes.at[i], &options, &diag);
    pst_program_free(program);
    pst_plan_free(plan);
    model_fini(&model);
    return ret;
}

/* Compares all ways to run the graph of a seed with that without chains;
 * returns how many nodes are in chains. */
static unsigned compare(unsigned seed, int64_t rows, int64_t cols,
                        const char *block)
{
    static const struct {
        const char *schedule, *recompute;
        unsigned cuts, threads;
    } ways[] = {
        {"gpipe", NULL, 0, 1},   {"zb-h1", NULL, 0, 3}, {"1f1b", NULL, 1, 2},
        {"gpipe", "full", 1, 1}, {"zb-h1", NULL, 2, 2},
    };
    struct text t = {.seed = seed,
                     .rows = rows,
                     .cols = cols,
                     .dtype = seed % 4 == 3 ? "bf16" : "f32",
                     .nodes = 12 + seed % 20};
    struct pst_exec_options o = net_options("gpipe", 1, 2, "sgd");
    struct pst_dump *want;
    unsigned parts;

    make_text(&t);
    assert_false(t.out.failed);
    assert_int_equal(setenv("PST_CHAIN_BLOCK", block, 1), 0);
    parts = count_parts(&t);
    o.no_chains = true;
    want = run_text(&t, 0, &o);
    for (size_t i = 0; i < PST_COUNT(ways); i++) {
        struct pst_dump *have;

        if (SANITIZED && (seed + i) % 2 != 0)
            continue;
        o = net_options(ways[i].schedule, ways[i].cuts + 1, 2, "sgd");
        o.threads = ways[i].threads;
        o.recompute = ways[i].recompute;
        o.verify = true;
        print_message("seed %u, way %zu\n", seed, i);
        have = run_text(&t, ways[i].cuts, &o);
        assert_same_dump(want, have);
        pst_dump_free(have);
    }
    pst_dump_free(want);
    pst_str_fini(&t.out);
    return parts;
}

static void same_bits(void **state)
{
    unsigned parts = 0;

    (void)state;
    for (unsigned seed = 0; seed < (SANITIZED ? 6 : 24); seed++)
        parts += compare(seed, 13, 24, seed % 2 ? "16" : "100");
    assert_true(parts > 100);
}

/* Rows and parts of rows begin at addresses that are not aligned. */
static void same_bits_of_odd_rows(void **state)
{
    unsigned parts = 0;

    (void)state;
    for (unsigned seed = 200; seed < (SANITIZED ? 202 : 208); seed++)
        parts += compare(seed, 11, 23, "16");
    assert_true(parts > 20);
}

/* Large enough for the threads of a pool. */
static void same_bits_with_threads(void **state)
{
    (void)state;
    for (unsigned seed = 100; seed < (SANITIZED ? 101 : 104); seed++)
        assert_true(compare(seed, 256, 160, "1000") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(same_bits_of_odd_rows),
        cmocka_unit_test(same_bits_with_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
