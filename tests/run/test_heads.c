// SPDX-License-Identifier: Apache-2.0
/*
 * A model with a head of 1024 classes, whose logits are computed by chunks: the
 * bits are the same for all cuts and schedules, and near to those of whole
 * logits.
 */
#include <unistd.h>

#include "tests/run/job.h"
#include "tests/sanitized.h"

#define CLASSES 1024
#define ROWS    600 /* more than two chunks */

/* The embedding is the head's weight, too. W has a larger workspace than I: the
 * gradient of %k. The rest of the text depends on the variant. */
static const char body[] =
    "graph next_id=20 {\n"
    "  input %x: i64[600]\n"
    "  input %y: i64[600]\n"
    "  param %emb \"e.weight\" grad: f32[1024, 8]\n"
    "  param %w \"w.weight\" grad: f32[8, 8]\n"
    "  param %mixing \"o.mixing\" grad: f32[600, 600]\n"
    "  param %bias \"o.bias\" grad: f32[1024]\n"
    "  param %gain \"g.gain\" grad: f32[]\n"
    "  %a: f32[600, 8] = aten.embedding.default(%emb, %x) # e - F id=0\n"
    "  %b: f32[600, 8] = aten.linear.default(%a, %w) # w - F id=1\n"
    "  %p: f32[600, 8] = aten.tanh.default(%b) # t - F id=2\n"
    "  %k: f32[600, 600] = aten.mul.Scalar(%mixing, 0.01) # o - F id=10\n"
    "  %h: f32[600, 8] = aten.mm.default(%k, %p) # o - F id=11\n";
static const char layer[] =
    "  %logits: f32[600, 1024] = aten.linear.default(%h, %emb, %bias) # o - F "
    "id=3\n";
/* the same under autocast */
#define CAST(dtype)                                                            \
    "  %hl: " dtype "[600, 8] = aten._to_copy.default(%h, dtype=" dtype        \
    ") # o - F id=20\n"                                                        \
    "  %el: " dtype "[1024, 8] = aten._to_copy.default(%emb, dtype=" dtype     \
    ") # o - F id=21\n"                                                        \
    "  %bl: " dtype "[1024] = aten._to_copy.default(%bias, dtype=" dtype       \
    ") # o - F id=22\n"                                                        \
    "  %low: " dtype "[600, 1024] = aten.linear.default(%hl, %el, %bl) # o - " \
    "F id=3\n"                                                                 \
    "  %logits: f32[600, 1024] = aten._to_copy.default(%low, dtype=f32) # l "  \
    "- F id=23\n"

static const char plain[] =
    "  %loss: f32[] = aten.cross_entropy_loss.default(%logits, %y) # l - F "
    "id=4\n"
    "  output user %loss \"0\"\n"
    "  output user %logits \"1\"\n"
    "}\n";

/* The loss is the head's loss multiplied by a value that another stage may
 * compute. */
static const char scaled[] =
    "  %c: f32[600, 1024] = aten.tanh.default(%logits) # o - F id=5\n"
    "  %d: f32[600, 1024] = aten.mul.Scalar(%c, 3.0) # o - F id=6\n"
    "  %l: f32[] = aten.cross_entropy_loss.default(%d, %y, None, 1, 3, 0.125) "
    "# l - F id=7\n"
    "  %m: f32[] = aten.mul.Scalar(%l, 0.5) # l - F id=8\n"
    "  %loss: f32[] = aten.mul.Tensor(%m, %gain) # g - F id=9\n"
    "  output user %loss \"0\"\n"
    "  output user %l \"1\"\n"
    "}\n";

static const char summed[] =
    "  %loss: f32[] = aten.cross_entropy_loss.default(%logits, %y, None, 2, 5) "
    "# l - F id=4\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* A z-loss with a mask, computed before the loss. */
static const char squared[] =
    "  %c: f32[600, 1024] = aten.tanh.default(%logits) # o - F id=5\n"
    "  %d: f32[600, 1024] = aten.mul.Scalar(%c, 3.0) # o - F id=6\n"
    "  %z: f32[600] = aten.logsumexp.default(%d, [-1]) # l - F id=12\n"
    "  %sq: f32[600] = aten.pow.Tensor_Scalar(%z, 2) # l - F id=13\n"
    "  %ne: bool[600] = aten.ne.Scalar(%y, 3) # l - F id=14\n"
    "  %zm: f32[600] = aten.mul.Tensor(%sq, %ne) # l - F id=15\n"
    "  %zz: f32[] = aten.mean.default(%zm) # l - F id=16\n"
    "  %zs: f32[] = aten.mul.Scalar(%zz, 0.25) # l - F id=17\n"
    "  %l: f32[] = aten.cross_entropy_loss.default(%d, %y, None, 1, 3) # l - F "
    "id=7\n"
    "  %m: f32[] = aten.add.Tensor(%l, %zs) # l - F id=8\n"
    "  %loss: f32[] = aten.mul.Tensor(%m, %gain) # g - F id=9\n"
    "  output user %loss \"0\"\n"
    "  output user %zz \"1\"\n"
    "}\n";

/* One of all rows, ignored ones too, computed after the loss. */
static const char whole_squares[] =
    "  %l: f32[] = aten.cross_entropy_loss.default(%logits, %y, None, 1, 3, "
    "0.125) # l - F id=7\n"
    "  %z: f32[600] = aten.logsumexp.default(%logits, [-1]) # l - F id=12\n"
    "  %sq: f32[600] = aten.mul.Tensor(%z, %z) # l - F id=13\n"
    "  %zz: f32[] = aten.sum.default(%sq) # l - F id=16\n"
    "  %zs: f32[] = aten.mul.Scalar(%zz, 0.0001) # l - F id=17\n"
    "  %loss: f32[] = aten.add.Tensor(%l, %zs) # l - F id=8\n"
    "  output user %loss \"0\"\n"
    "  output user %l \"1\"\n"
    "}\n";

/* A variant of the model, and its targets: every seventh is ignored. */
struct variant {
    const char *text;
    int64_t ignored, only; /* only: the class of all targets; 0: any */
};
static const struct variant variants[] = {{plain, -100, 0},
                                          {scaled, 3, 0},
                                          {summed, 5, 0},
                                          {squared, 3, 0},
                                          {whole_squares, 3, 0}};

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct variant *v = ctx;
    unsigned seed = (unsigned)step * 1000 + microbatch * 10 + input;
    int64_t *to = dst;

    (void)diag;
    for (int i = 0; i < ROWS; i++) {
        (void)model_number(&seed);
        to[i] = (seed >> 12) % CLASSES;
        if (input == 1 && i % 7 == 2)
            to[i] = v->ignored;
        if (input == 1 && v->only != 0)
            to[i] = v->only;
    }
    return PST_OK;
}

/* The linear layer of all jobs here under autocast; NULL: in f32. */
static const char *cast;

static void start(struct job *job, const struct variant *v,
                  const char *const *at, size_t n,
                  const struct pst_exec_options *options)
{
    static const char *const modules[] = {"e", "w", "t", "o", "l", "g"};
    const struct pst_split_options cut = {.at = at, .n_at = n};
    struct pst_diag *diag = &job->net.diag;
    struct pst_str text = {0};
    char ranks[16];

    pst_diag_init(diag);
    pst_str_addf(&text, "%s%s%s", body, cast != NULL ? cast : layer, v->text);
    model_init(&job->net.model, pst_str_text(&text), modules,
               PST_COUNT(modules));
    pst_str_fini(&text);
    assert_ok(pst_split(&job->net.model, &cut, &job->net.plan, diag), diag);
    (void)snprintf(ranks, sizeof(ranks), "%u", options->ranks);
    assert_ok(pst_transport_self.open(ranks, &job->transport, diag), diag);
    assert_ok(pst_engine_new(job->net.plan, job->transport, options,
                             &job->engine, diag),
              diag);
}

static void step(struct job *job, const struct variant *v, uint64_t number)
{
    assert_ok(pst_engine_step(job->engine, number, fill, (void *)v, 0,
                              &job->last, &job->net.diag),
              &job->net.diag);
    assert_true(job->last.applied);
}

/* The options of all jobs here. */
static bool bf16;

/* Runs two steps of the model, cut at these names; returns the dump of the
 * first step, with the state after the second. */
static struct run run_cut(const struct variant *v, const char *const *at,
                          size_t n, const struct pst_exec_options *options)
{
    struct run ret;
    struct job job;

    start(&job, v, at, n, options);
    step(&job, v, 0);
    ret.dump = job_first(&job);
    step(&job, v, 1);
    for (unsigned k = 0; k < pst_engine_n_local(job.engine); k++)
        assert_int_equal(pst_engine_high_water(job.engine, k),
                         pst_engine_memory(job.engine, k).arena);
    job_state(&job, ret.dump);
    ret.norm = job.last.grad_norm;
    ret.loss = job.last.loss;
    job_fini(&job);
    return ret;
}

static struct pst_exec_options options_of(const char *schedule, unsigned ranks,
                                          unsigned m)
{
    struct pst_exec_options ret = net_options(schedule, ranks, m, "sgd");

    ret.bf16 = bf16;
    return ret;
}

/* With TSan, the threads of ranks matter, not dtypes and variants of the loss.
 */
#ifdef __SANITIZE_THREAD__
#define THREADS true
#else
#define THREADS false
#endif

/* Sanitizers take 40 times as long: with ASan each row and each variant runs in
 * f32, but not all pairs, and one variant in bf16 and under autocast; with TSan
 * one variant runs in all rows. */
static bool has_turn(size_t variant)
{
    const char *text = variants[variant].text;

    if (THREADS)
        return text == squared;
    return text == squared || (cast == NULL && !(SANITIZED && bf16)) ||
           (text == scaled && !SANITIZED);
}

/* A schedule whose last stage runs some backwards as B and others as I and W.
 */
static const char lists[] =
    "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1I1,1W1,1F2,1B2,1F3,1B3\n";

static void write_lists(char name[64])
{
    int fd;

    (void)snprintf(name, 64, "csv:/tmp/penstock-lists-XXXXXX");
    fd = mkstemp(name + 4);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, lists, strlen(lists)), strlen(lists));
    assert_int_equal(close(fd), 0);
}

static void same_bits(void **state)
{
    /* "o:end" and "l" would divide the head */
    static const struct {
        const char *at[3];
        size_t n;
        const char *schedule, *recompute;
        unsigned ranks;
        bool without_outputs, scaled; /* scaled: for that variant only */
    } rows[] = {
        {{NULL}, 0, "gpipe", NULL, 1, true},
        {{NULL}, 0, "zb-h1", NULL, 1, false},
        {{"w"}, 1, "1f1b", NULL, 2, false},
        {{"o"}, 1, "zb-h1", NULL, 2, true},
        {{"o"}, 1, "csv", NULL, 2, false},
        {{"o:end"}, 1, "gpipe", NULL, 2, false},
        {{"l"}, 1, "zb-h1", "full", 2, false},
        {{"t", "o"}, 2, "1f1b", "full", 3, true},
        {{"w", "g"}, 2, "zb-h1", NULL, 3, false, true},
        {{"w", "o", "g"}, 3, "interleaved-1f1b", NULL, 2, false, true},
        {{"w", "o", "g"}, 3, "zb-v", "full,twice", 2, false, true},
    };

    char csv[64];

    (void)state;
    write_lists(csv);
    for (size_t k = 0; k < PST_COUNT(variants); k++) {
        const struct pst_exec_options once = options_of("gpipe", 1, 4);
        const struct variant *v = &variants[k];
        struct run whole;
        size_t n;

        if (!has_turn(k))
            continue;
        whole = run_cut(v, NULL, 0, &once);
        for (size_t i = 0; i < PST_COUNT(rows); i++) {
            struct pst_exec_options o =
                options_of(rows[i].schedule, rows[i].ranks, 4);
            struct run cut;

            if (rows[i].scaled && v->text != scaled && v->text != squared)
                continue;
            if (SANITIZED && !THREADS && (k + i) % PST_COUNT(variants) != 0)
                continue;
            if (strcmp(o.schedule, "csv") == 0)
                o.schedule = csv;
            print_message("variant %zu, row %zu\n", k, i);
            o.recompute = rows[i].recompute;
            o.keep_outputs = !rows[i].without_outputs;
            cut = run_cut(v, rows[i].at, rows[i].n, &o);
            assert_true(whole.loss == cut.loss && whole.norm == cut.norm);
            if (!rows[i].without_outputs)
                assert_same_dump(whole.dump, cut.dump);
            pst_dump_free(cut.dump);
        }
        (void)pst_dump_items(whole.dump, &n);
        assert_in_range(n, 8, 20);
        pst_dump_free(whole.dump);
    }
    (void)unlink(csv + 4);
}

static void same_bits_bf16(void **state)
{
    bf16 = true;
    same_bits(state);
    bf16 = false;
}

static void same_bits_autocast(void **state)
{
    cast = CAST("bf16");
    same_bits(state);
    cast = NULL;
}

/* Chunks sum in another order than whole logits, so the bits may differ, but
 * not by more than roundings. */
static void compare_with_whole_logits(double tolerance)
{
    for (size_t k = 0; k < PST_COUNT(variants); k++) {
        struct pst_exec_options o = options_of("gpipe", 1, 2);
        struct run chunks, whole;

        if (!has_turn(k) || (SANITIZED && variants[k].text != squared))
            continue;
        chunks = run_cut(&variants[k], NULL, 0, &o);
        o.whole_logits = true;
        whole = run_cut(&variants[k], NULL, 0, &o);
        assert_near(whole.dump, chunks.dump, tolerance);
        pst_dump_free(chunks.dump);
        pst_dump_free(whole.dump);
    }
}

static void near_whole_logits(void **state)
{
    (void)state;
    compare_with_whole_logits(2e-6);
}

/* A gradient of a logit that is near the middle of two bf16 numbers may be
 * rounded to the other one. */
static void near_whole_logits_bf16(void **state)
{
    (void)state;
    bf16 = true;
    compare_with_whole_logits(1e-3);
    bf16 = false;
}

/* Under autocast logits are rounded as well, with the same exception; whole
 * logits give gradients of weights that are rounded to bf16. */
static void near_whole_logits_autocast(void **state)
{
    static const char *const casts[] = {CAST("bf16"), CAST("f16")};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(casts); i++)
        for (size_t k = 0; k < PST_COUNT(variants); k++) {
            struct pst_exec_options o = options_of("gpipe", 1, 2);
            struct run chunks, whole, plain;

            cast = casts[i];
            if (!has_turn(k))
                continue;
            chunks = run_cut(&variants[k], NULL, 0, &o);
            o.whole_logits = true;
            whole = run_cut(&variants[k], NULL, 0, &o);
            assert_near(whole.dump, chunks.dump, 4e-3);
            cast = NULL;
            plain = run_cut(&variants[k], NULL, 0, &o);
            /* the logits are rounded, not only the operands */
            assert_true(fabs(chunks.loss - whole.loss) <
                        0.1 * fabs(plain.loss - whole.loss));
            pst_dump_free(plain.dump);
            pst_dump_free(chunks.dump);
            pst_dump_free(whole.dump);
        }
    cast = NULL;
}

static size_t memory_of(const struct variant *v,
                        const struct pst_exec_options *options)
{
    struct job job;
    size_t ret;

    start(&job, v, NULL, 0, options);
    ret = pst_engine_memory(job.engine, 0).arena;
    job_fini(&job);
    return ret;
}

/* Without kept outputs the logits of 4 microbatches are not in memory. */
static void logits_are_never_whole(void **state)
{
    struct pst_exec_options o = options_of("gpipe", 1, 4);
    const size_t logits = (size_t)ROWS * CLASSES * sizeof(float);
    size_t chunks, whole;

    (void)state;
    o.keep_outputs = false;
    for (unsigned i = 0; i < 2; i++) {
        cast = i == 0 ? NULL : CAST("bf16");
        o.whole_logits = false;
        chunks = memory_of(&variants[0], &o);
        o.whole_logits = true;
        whole = memory_of(&variants[0], &o);
        assert_true(whole > 5 * logits);
        assert_true(chunks + 4 * logits <= whole);
    }
    cast = NULL;
}

/* Targets that are all ignored: the loss and all gradients are 0. */
static void all_ignored(void **state)
{
    const struct variant v = {summed, 5, 5};
    const struct pst_exec_options o = options_of("1f1b", 1, 2);
    struct run run = run_cut(&v, NULL, 0, &o);

    (void)state;
    assert_true(run.loss == 0.0 && run.norm == 0.0);
    pst_dump_free(run.dump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(same_bits_bf16),
        cmocka_unit_test(same_bits_autocast),
        cmocka_unit_test(near_whole_logits_autocast),
        cmocka_unit_test(near_whole_logits),
        cmocka_unit_test(near_whole_logits_bf16),
        cmocka_unit_test(logits_are_never_whole),
        cmocka_unit_test(all_ignored),
    };

    return _cmocka_run_group_tests("heads", tests,
                                   THREADS ? 1 : PST_COUNT(tests), NULL, NULL);
}
