// SPDX-License-Identifier: Apache-2.0
/*
 * Tests random models, cut at random places in three ways, on 1 to 4 ranks, in
 * every schedule, with and without recomputation, with microbatches of equal or
 * unequal weights. Loss, outputs, gradients and buffers have the bits of the
 * uncut run without recomputation.
 * "test-split-random N" runs N seeds, "test-split-random seed K" only that one,
 * with its text. PST_TEST_SEED=N begins with another seed.
 */
#include "tests/split/model.h"
#include "tests/split/random.h"
#include "tests/step.h"

#include "stages/compile/recompute.h"
#include "stages/run/dump.h"

#include <math.h>
#include <stdio.h>

#define EXACT_USES 8 /* with more uses, last bits may differ */

static struct pst_diag diag;
static unsigned n_seeds = 50, only_seed, n_runs, n_finite, n_again, n_carried,
                n_stages_seen[PST_PLAN_MAX_STAGES + 1];
static bool talks;

struct job {
    unsigned seed, uses[64]; /* uses of plan->params in the uncut graph */
    struct pst_model model, plain;
    struct pst_plan *plan;
    const char *cut; /* description of the cut */
    const char *schedule, *recompute;
    unsigned ranks, microbatches;
    bool uneven; /* microbatches have other weights */
};

/* --- models ------------------------------------------------------------- */

static void open_model(struct pst_model *model, unsigned seed, bool markers)
{
    static const char *aliases[] = {"m.5.weight"};
    struct pst_tie tie = {"m.4.weight", aliases, 1};
    struct random_model text;

    random_model_init(&text, seed, markers);
    model_init(model, text.text.text, NULL, 0);
    assert_true(pst_vec_push(PST_TAG_TEST, &model->ties, tie));
    for (size_t i = 0; i < model->weights_by_fqn.n; i++) {
        struct pst_weight *weight = model->weights_by_fqn.entries[i].value;
        float *data = (float *)weight->data;

        for (int64_t k = 0; k < pst_meta_numel(&weight->meta); k++)
            data[k] *= strcmp(weight->fqn, "zero") == 0 ? 0.1f : 0.5f;
    }
    random_model_fini(&text);
}

static void close_model(struct pst_model *model)
{
    pst_vec_fini(&model->ties);
    model_fini(model);
}

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *d)
{
    const struct job *job = ctx;
    const struct pst_plan_input *in = &job->plan->inputs.at[input];
    unsigned seed = job->seed * 1000 + microbatch * 10 + input;

    (void)step;
    (void)d;
    for (int64_t i = 0; i < pst_meta_numel(&in->meta); i++) {
        const float x = model_number(&seed);

        if (in->meta.dtype == PST_F32)
            ((float *)dst)[i] = x;
        else
            ((int64_t *)dst)[i] = (seed >> 16) % RANDOM_CLASSES;
    }
    return PST_OK;
}

/* Sets weights from 0 to 6, of which the first is not 0. */
static enum pst_status weigh(void *ctx, uint64_t step, double *ret,
                             struct pst_diag *d)
{
    const struct job *job = ctx;
    unsigned seed = job->seed * 77 + 1;

    (void)step;
    (void)d;
    for (unsigned k = 0; k < job->microbatches; k++)
        ret[k] = random_draw(&seed, 7) + (k == 0);
    return PST_OK;
}

/* --- runs --------------------------------------------------------------- */

static struct pst_dump *run(struct job *job)
{
    struct pst_exec_options options = {.schedule = job->schedule,
                                       .ranks = job->ranks,
                                       .microbatches = job->microbatches,
                                       .train = true,
                                       .keep_outputs = true,
                                       .threads = 1,
                                       .seed = 3,
                                       .verify = true,
                                       .weigh = job->uneven ? weigh : NULL,
                                       .weigh_ctx = job,
                                       .recompute = job->recompute};

    return step_run(job->plan, &options, fill, job);
}

static double distance(const struct pst_dump_item *a,
                       const struct pst_dump_item *b)
{
    double off = 0.0, all = 0.0;

    for (int64_t i = 0; i < pst_meta_numel(&a->meta); i++) {
        const double x = pst_load_f64(a->meta.dtype, a->data, i);
        const double y = pst_load_f64(b->meta.dtype, b->data, i);

        off += (x - y) * (x - y);
        all += x * x;
    }
    return sqrt(off) / (sqrt(all) + 1e-30);
}

static bool is_inexact(const struct job *job, const char *name)
{
    int k;

    if (strncmp(name, "grad.", 5) != 0)
        return false;
    k = pst_plan_find_param(job->plan, name + 5);
    return k >= 0 && job->plan->params.at[k].n_stages > 1 &&
           job->uses[k] > EXACT_USES;
}

/* Compares dumps; NaNs with the same bits are equal. */
static void compare(const struct job *job, const struct pst_dump *want,
                    const struct pst_dump *got)
{
    size_t n, n_got;
    const struct pst_dump_item *items = pst_dump_items(want, &n);

    (void)pst_dump_items(got, &n_got);
    assert_int_equal(n, n_got);
    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *match = pst_dump_find(got, items[i].name);

        if (match == NULL || !pst_meta_same(&match->meta, &items[i].meta))
            fail_msg("%s is missing", items[i].name);
        if (memcmp(match->data, items[i].data, pst_meta_bytes(&match->meta)) ==
                0 ||
            (is_inexact(job, items[i].name) &&
             distance(&items[i], match) <= 1e-6))
            continue;
        fail_msg("seed %u, %s, %zu stages, %s, %u ranks, %u microbatches, "
                 "recompute %s: %s differs by %.3g; replay: test-split-random "
                 "seed %u",
                 job->seed, job->cut, job->plan->stages.n, job->schedule,
                 job->ranks, job->microbatches,
                 job->recompute != NULL ? job->recompute : "none",
                 items[i].name, distance(&items[i], match), job->seed);
    }
}

static bool is_possible(const struct job *job)
{
    const struct pst_schedule_options options = {
        .name = job->schedule,
        .ranks = job->ranks,
        .stages = (unsigned)job->plan->stages.n,
        .microbatches = job->microbatches,
        .train = true};
    struct pst_schedule *sched;

    if (pst_schedule_make(&options, &sched, &diag) != PST_OK)
        return false;
    pst_schedule_free(sched);
    return true;
}

/* Draws what a run recomputes: modules whose nodes are interleaved with
 * others', nested, and in several stages. */
static void draw_recompute(struct job *job, unsigned *seed)
{
    static const char *const words[] = {NULL,
                                        "full",
                                        "m.*",
                                        "u",
                                        "s,a",
                                        "sum*",
                                        "full,m.*,r",
                                        "block",
                                        "?,0=full",
                                        "full,twice",
                                        "full,m.*,r,twice",
                                        "m.*,s,0=full,0=twice"};

    job->recompute = words[random_draw(seed, PST_COUNT(words))];
    if (pst_recompute_check(job->plan, job->recompute, &diag) != PST_OK)
        job->recompute = "full"; /* the plan has no such module */
    n_again += job->recompute != NULL;
}

/* Runs every schedule that accepts the plan on these ranks. */
static void run_plan(struct job *job, const struct pst_dump *want)
{
    unsigned seed = job->seed * 31 + (unsigned)job->plan->stages.n;
    size_t n;
    const struct pst_sched_row *rows = pst_sched_rows(&n);

    n_stages_seen[job->plan->stages.n]++;
    for (size_t i = 0; i < n; i++) {
        struct pst_dump *got;

        job->schedule = rows[i].name;
        if (!is_possible(job))
            continue;
        draw_recompute(job, &seed);
        if (talks)
            printf("%s: %zu stages, %s, %u ranks, %u microbatches, recompute "
                   "%s\n",
                   job->cut, job->plan->stages.n, job->schedule, job->ranks,
                   job->microbatches,
                   job->recompute != NULL ? job->recompute : "none");
        got = run(job);
        compare(job, want, got);
        pst_dump_free(got);
        n_runs++;
    }
}

/* --- cuts --------------------------------------------------------------- */

/* Draws names of live nodes, at most `n` of them. */
static void draw_names(const struct job *job, unsigned *seed, unsigned n,
                       char names[8][16], const char *at[8],
                       struct pst_split_options *options)
{
    const struct pst_graph *graph = job->plan->stages.at[0].graph;

    for (unsigned i = 0; i < n; i++) {
        const struct pst_node *node =
            graph->nodes.at[random_draw(seed, (unsigned)graph->nodes.n)];

        snprintf(names[i], sizeof(names[0]), "%s", node->outs[0]->name);
        at[i] = names[i];
    }
    options->at = at;
    options->n_at = n;
}

/* Names the owner of a buffer of several stages that the message suggests, or
 * another one if that is refused. Returns false for any other refusal. */
static bool name_owner(char owners[2][32], struct pst_split_options *options,
                       enum pst_status status)
{
    const char *users =
        strstr(diag.text, "the stages that use the buffer are ");
    const char *at = strstr(diag.text, "--owner ");
    char *owner = owners[options->n_owner];

    if (status == PST_ERR_INPUT && users != NULL) {
        owner = strncmp(at + 8, "tick", 4) == 0 ? owners[0] : owners[1];
        *strchr(owner, '=') = '\0';
        snprintf(owner + strlen(owner), 16, "=%d",
                 atoi(strrchr(users, ' ') + 1));
        return true;
    }
    if (status != PST_ERR_UNSUPPORTED)
        return false;
    assert_non_null(strstr(diag.text, "E_SHARED_MUT"));
    assert_non_null(at);
    assert_true(options->n_owner < 2);
    snprintf(owner, 32, "%.*s", (int)strcspn(at + 8, " "), at + 8);
    options->n_owner++;
    return true;
}

/* Cuts the model. Even seeds name owners of both buffers from the beginning, so
 * that automatic cuts may separate the users of a buffer; odd seeds name an
 * owner only after a cut was refused. */
static bool cut(struct job *job, struct pst_model *model,
                const struct pst_split_options *as, const char *how)
{
    char owners[2][32] = {"tick=0", "n.seen=0"};
    const char *const list[] = {owners[0], owners[1]};
    struct pst_split_options options = *as;
    enum pst_status status;

    options.owner = list;
    options.n_owner = job->seed % 2 == 0 ? 2 : 0;
    do
        status = pst_split(model, &options, &job->plan, &diag);
    while (status != PST_OK && name_owner(owners, &options, status));
    if (status == PST_ERR_INPUT)
        assert_non_null(strstr(diag.text, "too many"));
    else
        assert_ok(status, &diag);
    for (size_t i = 0; status == PST_OK && i < job->plan->params.n; i++)
        n_carried += job->plan->params.at[i].carried;
    job->cut = how;
    return status == PST_OK;
}

static void cut_and_run(struct job *job, struct pst_model *model,
                        const struct pst_split_options *options, unsigned *seed,
                        const char *how, const struct pst_dump *want)
{
    if (!cut(job, model, options, how))
        return;
    job->ranks = 1 + random_draw(seed, 4);
    job->ranks = PST_MIN(job->ranks, (unsigned)job->plan->stages.n);
    run_plan(job, want);
    pst_plan_free(job->plan);
    job->plan = NULL;
}

/* True if the loss and the gradient of b are finite, and the gradient is not
 * zero. */
static bool is_finite(const struct pst_dump *dump)
{
    const struct pst_dump_item *loss = pst_dump_find(dump, "loss");
    const struct pst_dump_item *grad = pst_dump_find(dump, "grad.b");
    double sum = 0.0;

    for (int64_t i = 0; grad != NULL && i < pst_meta_numel(&grad->meta); i++)
        sum += fabs(pst_load_f64(grad->meta.dtype, grad->data, i));
    return isfinite(pst_load_f64(loss->meta.dtype, loss->data, 0)) &&
           isfinite(sum) && sum > 0.0;
}

static void count_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct job *job = ctx;
    int k;

    (void)arg;
    if ((*slot)->kind != PST_VALUE_PARAM)
        return;
    k = pst_plan_find_param(job->plan, (*slot)->fqn);
    assert_true(k >= 0 && k < 64);
    job->uses[k]++;
}

static void try_seed(unsigned number)
{
    static const char *const transmit[] = {"m.0.weight", "m.5.weight", "b"};
    struct pst_split_options uncut = {.policy = "flops", .stages = 1},
                             markers = {0}, names = {0},
                             flops = {.policy = "flops"};
    struct job job = {.seed = number, .schedule = "gpipe", .ranks = 1};
    unsigned seed = number * 7919u + 3;
    char text[8][16];
    const char *at[8];
    struct pst_plan *whole;
    struct pst_dump *want;

    open_model(&job.model, number, true);
    open_model(&job.plain, number, false);
    job.microbatches = 1 + random_draw(&seed, 4);
    job.uneven = number % 4 != 0;
    assert_true(cut(&job, &job.plain, &uncut, "uncut"));
    for (size_t i = 0; i < job.plan->stages.at[0].graph->nodes.n; i++)
        pst_node_uses(job.plan->stages.at[0].graph->nodes.at[i], count_use,
                      &job);
    want = run(&job);
    n_finite += is_finite(want);
    draw_names(&job, &seed, 1 + random_draw(&seed, 7), text, at, &names);
    whole = job.plan;
    cut_and_run(&job, &job.model, &markers, &seed, "markers", want);
    names.transmit = transmit;
    names.n_transmit = random_draw(&seed, 4);
    cut_and_run(&job, &job.plain, &names, &seed, "names", want);
    flops.stages = 2 + random_draw(&seed, 7);
    flops.policy = random_draw(&seed, 2) ? "flops" : "memory";
    cut_and_run(&job, &job.plain, &flops, &seed, flops.policy, want);
    pst_dump_free(want);
    pst_plan_free(whole);
    close_model(&job.plain);
    close_model(&job.model);
}

static void random_models_have_the_same_bits(void **state)
{
    const char *by_chance = getenv("PST_TEST_SEED");
    unsigned first = 0;

    (void)state;
    if (only_seed > 0) {
        struct random_model model;

        random_model_init(&model, only_seed, true);
        printf("%s", model.text.text);
        random_model_fini(&model);
        try_seed(only_seed);
        return;
    }
    if (by_chance != NULL)
        first = (unsigned)strtoul(by_chance, NULL, 10) * 1000;
    print_message("seeds %u to %u\n", first + 1, first + n_seeds);
    for (unsigned seed = first + 1; seed <= first + n_seeds; seed++)
        try_seed(seed);
    printf("%u models (%u with finite gradients), %u runs (%u that recompute); "
           "%u buffers of several stages; plans by number of stages:",
           n_seeds, n_finite, n_runs, n_again, n_carried);
    assert_true(n_finite * 2 > n_seeds && n_again * 2 > n_runs);
    assert_true(n_carried * 2 > n_seeds);
    for (unsigned i = 1; i <= 10; i++)
        printf(" %u", n_stages_seen[i]);
    printf("\n");
    for (unsigned i = 2; i <= 8 && n_seeds >= 50 && first == 0; i++)
        assert_true(n_stages_seen[i] > 0);
}

/* Stages without parameters, with integer results only, with a result that two
 * distant stages read; 64 stages on 4 ranks and fewer. */
static void sixty_four_stages(void **state)
{
    static const struct pst_split_options many = {.policy = "flops",
                                                  .stages = 64,
                                                  .bandwidth = 1e15},
                                          one = {.policy = "flops",
                                                 .stages = 1};
    struct job job = {.seed = 1, .schedule = "gpipe", .microbatches = 4};
    struct pst_str text = {0};
    struct pst_plan *whole;
    struct pst_dump *want;
    unsigned before;

    (void)state;
    pst_str_add(&text, "graph next_id=300 {\n"
                       "  input %x: f32[4, 8]\n"
                       "  input %ids: i64[4]\n"
                       "  param %w \"w\" grad: f32[8, 8]\n"
                       "  param %b \"b\" grad: f32[8]\n"
                       "  %n0 = aten.maximum.default(%ids, %ids)  # - - F "
                       "id=200\n"
                       "  %v0 = aten.linear.default(%x, %w, %b)  # - - F "
                       "id=201\n");
    for (unsigned i = 1; i <= 32; i++)
        pst_str_addf(&text,
                     "  %%n%u = aten.maximum.default(%%n%u, %%ids)  # - - F "
                     "id=%u\n"
                     "  %%v%u = aten.%s.default(%%v%u)  # - - F id=%u\n",
                     i, i - 1, 2 * i, i, i % 2 ? "tanh" : "neg", i - 1,
                     2 * i + 1);
    pst_str_add(&text,
                "  %e = aten.embedding.default(%w, %n32)  # - - F id=202\n"
                "  %s = aten.add.Tensor(%v32, %v0)  # - - F id=203\n"
                "  %loss = aten.mse_loss.default(%s, %e)  # - - F id=204\n"
                "  output user %loss \"0\"\n"
                "  output user %v7 \"1\"\n"
                "  output user %n9 \"2\"\n}\n");
    model_init(&job.model, text.text, NULL, 0);
    pst_str_fini(&text);
    job.ranks = 1;
    assert_true(cut(&job, &job.model, &one, "uncut"));
    want = run(&job);
    whole = job.plan;
    assert_true(cut(&job, &job.model, &many, "64 stages"));
    assert_int_equal(job.plan->stages.n, 64);
    before = n_runs;
    for (job.ranks = 4; job.ranks > 0; job.ranks /= 2)
        run_plan(&job, want);
    assert_true(n_runs - before >= 15); /* at least five schedules */
    pst_plan_free(job.plan);
    pst_plan_free(whole);
    pst_dump_free(want);
    model_fini(&job.model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models_have_the_same_bits),
        cmocka_unit_test(sixty_four_stages),
    };

    pst_diag_init(&diag);
    if (argc == 2)
        n_seeds = (unsigned)atoi(argv[1]);
    if (argc == 3) {
        only_seed = (unsigned)atoi(argv[2]);
        talks = true;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
