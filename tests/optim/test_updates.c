// SPDX-License-Identifier: Apache-2.0
/* Every optimizer's task on the device that PENSTOCK_DEVICE names, else on the
 * CPU with each of its instruction sets, against PyTorch's numbers in
 * optim.json of PST_GOLDEN (tests/golden/make/make_optim.py). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/optim/optim.h"
#include "stages/optim/rows.h"
#include "tests/test.h"

#define N     24
#define STEPS 200
#define LONG  (3 * 4096 + 8)

/* Largest error against PyTorch's f32, relative to the value, or to a
 * hundredth of the tensor's largest one. PyTorch's own errors against f64 are
 * up to 5e-6 (`off` in the file). */
#define TOLERANCE 2e-5

enum {
    PARAM,
    GRAD,
    STATE,
    WORDS = STATE + PST_OPTIM_MAX_STATES,
    WORK, /* of several tensors' size */
    N_TENSORS = WORK + 6
};

static json_t *cases;
static struct pst_diag diag;
static struct pst_device_memory mem;
static struct pst_pool *pool;

/* --- tensors on the device ------------------------------------------------ */

static float *on_device(int k)
{
    return (float *)(void *)mem.base + (size_t)k * LONG;
}

static float *on_host(int k)
{
    return pst_device_host(&mem, on_device(k));
}

static void copy_to_device(int k)
{
    pst_device_push(&mem, on_device(k), LONG * sizeof(float));
}

static const float *copy_to_host(int k)
{
    return pst_device_pull(&mem, on_device(k), LONG * sizeof(float));
}

static void fill(int k, float x)
{
    for (int i = 0; i < LONG; i++)
        on_host(k)[i] = x;
    copy_to_device(k);
}

/* True for an optimizer that only the CPU has, so far. */
static bool is_elsewhere(const char *name)
{
    return mem.device != &pst_device_cpu &&
           (strcmp(name, "lamb") == 0 || strcmp(name, "muon") == 0 ||
            strcmp(name, "adafactor") == 0 ||
            strcmp(name, "schedulefree") == 0);
}

static unsigned last_isa(void)
{
    return mem.device == &pst_device_cpu ? pst_cpu_isa() : PST_ISA_ANY;
}

static int64_t shape[PST_MAX_RANK] = {N};
static unsigned shape_rank = 1;

/* Sets the shape of the next updates to that of a case. */
static void set_shape(const json_t *c)
{
    const json_t *given = json_object_get(c, "shape");
    const json_t *size;
    size_t i;

    shape[0] = N;
    shape_rank = given == NULL ? 1 : (unsigned)json_array_size(given);
    json_array_foreach(given, i, size) shape[i] = json_integer_value(size);
}

/* Returns the meta of n elements: of that shape, or of one row, if the
 * optimizer wants two dimensions. */
static struct pst_meta shape_of(int64_t n)
{
    const int64_t row[] = {1, n}, flat[] = {n};

    if (n == N)
        return pst_meta_make(PST_F32, shape_rank, shape);
    return shape_rank == 2 ? pst_meta_make(PST_F32, 2, row)
                           : pst_meta_make(PST_F32, 1, flat);
}

/* Runs one update of the first n elements with the gradient from element
 * `grad` on. number 0: no words. */
static void update(const struct pst_optim_options *o, uint64_t updates,
                   int64_t n, int64_t grad, unsigned isa,
                   struct pst_pool *threads, double number)
{
    const struct pst_update numbers =
        pst_optim_update(o->row, o, 1000 + updates, 1000, 1);
    const struct pst_meta meta = shape_of(n);
    void *from[3 + PST_OPTIM_MAX_STATES] = {
        on_device(GRAD) + grad, [1 + PST_OPTIM_MAX_STATES] = on_device(WORK)};
    struct pst_task task = {.dtype = PST_F32,
                            .n = n,
                            .to = on_device(PARAM),
                            .from = from,
                            .n_from = PST_COUNT(from),
                            .number = number,
                            .meta = &meta,
                            .update = &numbers,
                            .pool = threads,
                            .isa = (enum pst_isa)isa};
    const struct pst_recorder *recorder = mem.device->recorder;
    struct pst_update other = numbers;
    struct pst_event none = {0};
    pst_task_fn run;

    for (unsigned k = 0; k < pst_optim_n_states(o->row, o); k++)
        from[1 + k] = on_device(STATE + (int)k);
    if (number > 0)
        from[PST_COUNT(from) - 1] = on_device(WORDS);
    assert_ok(pst_device_task(mem.device, o->row->task, &run, &diag), &diag);
    if (recorder != NULL && recorder->slots > 0 && updates % 2 == 1) {
        /* The numbers are those of the slot, not of the task. */
        task.slot = 1 + (unsigned)updates % recorder->slots;
        task.n = 0;
        mem.device->run(&mem, run, &task);
        other.lr = other.grad_scale = other.weight_decay = 77;
        other.bias1 = other.bias2 = other.lr_divisor = 0.5;
        task.n = n;
        task.update = &other;
    }
    mem.device->run(&mem, run, &task);
    assert_int_not_equal(mem.device->poll(&mem, &none), PST_ERR_DEVICE);
}

/* --- PyTorch's numbers ---------------------------------------------------- */

static struct pst_optim_options options_of(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "optimizer"));
    struct pst_optim_options o;
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"lr", &o.lr},
                   {"weight_decay", &o.weight_decay},
                   {"momentum", &o.momentum},
                   {"dampening", &o.dampening},
                   {"beta1", &o.beta1},
                   {"beta2", &o.beta2},
                   {"eps", &o.eps},
                   {"alpha", &o.alpha},
                   {"rho", &o.rho},
                   {"lr_decay", &o.lr_decay},
                   {"ns_steps", &o.ns_steps},
                   {"beta2_decay", &o.beta2_decay},
                   {"eps2", &o.eps2},
                   {"clip_threshold", &o.clip_threshold}};
    const struct {
        const char *key;
        bool *to;
    } flags[] = {{"nesterov", &o.nesterov},
                 {"centered", &o.centered},
                 {"match_rms_adamw", &o.match_rms_adamw}};
    json_t *given = json_object_get(c, "options");
    size_t n = 0;

    assert_ok(pst_optim_defaults(name, &o, &diag), &diag);
    assert_non_null(o.row);
    for (size_t i = 0; i < PST_COUNT(numbers); i++) {
        const json_t *x = json_object_get(given, numbers[i].key);

        if (x != NULL)
            *numbers[i].to = json_number_value(x);
        n += x != NULL;
    }
    for (size_t i = 0; i < PST_COUNT(flags); i++) {
        const json_t *x = json_object_get(given, flags[i].key);

        if (x != NULL)
            *flags[i].to = json_is_true(x);
        n += x != NULL;
    }
    assert_int_equal(n, json_object_size(given));
    set_shape(c);
    assert_ok(pst_optim_check(&o, &diag), &diag);
    return o;
}

/* A whole number from -1000 to 1000, as make_optim.py has it. */
static float whole(uint32_t i)
{
    return (float)((int)((i * 2654435761u >> 8) % 2001) - 1000);
}

/* Sets the start values and zero states. */
static void begin(void)
{
    for (int i = 0; i < LONG; i++)
        on_host(PARAM)[i] = whole((uint32_t)(i % N) + 1) / 512;
    copy_to_device(PARAM);
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
        fill(STATE + (int)k, 0);
}

static float gradient(uint32_t step, uint32_t i)
{
    if (i == 0 || (i == 1 && step % 10 != 3))
        return 0;
    return (whole(1000 + step * N + i) + 300) / 1024 / (float)(1 << i % 7);
}

/* Returns the largest error of the first n elements. */
static double error_of(const float *got, const json_t *want, size_t n)
{
    double largest = 0, worst = 0;

    assert_int_equal(json_array_size(want), n);
    for (size_t i = 0; i < n; i++)
        largest =
            fmax(largest, fabs(json_number_value(json_array_get(want, i))));
    for (size_t i = 0; i < n; i++) {
        const double x = json_number_value(json_array_get(want, i));
        const double off = fabs((double)got[i] - x);

        assert_true(isfinite(got[i]));
        if (off > 0)
            worst = fmax(worst, off / fmax(fabs(x), 1e-2 * largest));
    }
    return worst;
}

/* Compares the parameters and each state with a case; prints the errors. */
static void check_case(const json_t *c, unsigned isa)
{
    const struct pst_optim_options o = options_of(c);
    json_t *states = json_object_get(c, "states"), *want;
    const double off =
        error_of(copy_to_host(PARAM), json_object_get(c, "param"), N);
    const struct pst_meta meta = shape_of(N);
    struct pst_meta of_state;
    double worst = 0;
    unsigned found = 0;

    for (unsigned k = 0; k < pst_optim_n_states(o.row, &o); k++) {
        want = json_object_get(states, o.row->states[k]);
        if (want == NULL) { /* not in use */
            for (int i = 0; i < N; i++)
                assert_true(copy_to_host(STATE + (int)k)[i] == 0);
            continue;
        }
        assert_true(pst_optim_state(&o, k, &meta, &of_state));
        worst = fmax(worst, error_of(copy_to_host(STATE + (int)k), want,
                                     (size_t)pst_meta_numel(&of_state)));
        found++;
    }
    assert_int_equal(found, json_object_size(states));
    print_message("%s, %s: off by %.1e, states by %.1e; PyTorch's f32 is off "
                  "its f64 by %.1e\n",
                  o.row->name, pst_isa_name((enum pst_isa)isa), off, worst,
                  json_number_value(json_object_get(c, "off")));
    assert_true(off <= TOLERANCE && worst <= TOLERANCE);
}

static void updates_are_torchs(void **state)
{
    const json_t *c;
    size_t k;

    (void)state;
    for (uint32_t s = 0; s < STEPS; s++)
        for (uint32_t i = 0; i < N; i++)
            on_host(GRAD)[s * N + i] = gradient(s, i);
    copy_to_device(GRAD);
    for (unsigned isa = PST_ISA_ANY; isa <= last_isa(); isa++)
        json_array_foreach(cases, k, c)
        {
            const struct pst_optim_options o = options_of(c);

            if (is_elsewhere(o.row->name))
                continue;
            begin();
            for (uint32_t s = 0; s < STEPS; s++)
                update(&o, s, N, (int64_t)s * N, isa, NULL, 0);
            check_case(c, isa);
        }
}

/* Threads, the ends of vectors and the place in a tensor change no bit. */
static void threads_keep_the_bits(void **state)
{
    static float one[N_TENSORS][LONG];
    const json_t *c;
    size_t k;

    (void)state;
    for (int i = 0; i < LONG; i++)
        on_host(GRAD)[i] = gradient(3, (uint32_t)(i % N));
    copy_to_device(GRAD);
    json_array_foreach(cases, k, c)
    {
        const struct pst_optim_options o = options_of(c);

        if (is_elsewhere(o.row->name))
            continue;
        for (int threads = 0; threads < 2; threads++) {
            begin();
            for (uint32_t s = 0; s < 3; s++)
                update(&o, s, LONG - 1, 0, last_isa(), threads ? pool : NULL,
                       0);
            for (int t = PARAM; t < WORDS && threads == 0; t++)
                memcpy(one[t], copy_to_host(t), sizeof(one[t]));
        }
        for (int t = PARAM; t < WORDS; t++) {
            assert_memory_equal(one[t], copy_to_host(t), sizeof(one[t]));
            for (int i = N; i < LONG - 1 && shape_rank == 1; i++)
                assert_true(one[t][i] == one[t][i % N]);
        }
    }
}

/* clip_value has the bits of a gradient that was limited before, on the CPU,
 * and leaves the gradient as it is. */
static void values_are_limited(void **state)
{
    static float want[N_TENSORS][LONG];
    const float most = 0.03f;
    const json_t *c;
    size_t k;

    (void)state;
    for (unsigned isa = PST_ISA_ANY; isa <= last_isa(); isa++)
        json_array_foreach(cases, k, c)
        {
            struct pst_optim_options o = options_of(c);
            unsigned limited = 0;

            if (mem.device != &pst_device_cpu)
                return;
            for (int clips = 0; clips < 2; clips++) {
                begin();
                for (int i = 0; i < LONG; i++) {
                    const float g = gradient(3, (uint32_t)(i % N));

                    limited += clips && fabsf(g) > most;
                    on_host(GRAD)[i] = clips ? g : fminf(fmaxf(g, -most), most);
                }
                copy_to_device(GRAD);
                o.clip_value = clips ? most : 0;
                for (uint32_t s = 0; s < 3; s++)
                    update(&o, s, LONG - 1, 0, isa, pool, 0);
                for (int t = PARAM; t < WORDS && !clips; t++)
                    memcpy(want[t], copy_to_host(t), sizeof(want[t]));
            }
            assert_true(limited > 1000 && limited < LONG - 1000);
            for (int t = PARAM; t < WORDS; t++)
                if (t != GRAD)
                    assert_memory_equal(want[t], copy_to_host(t),
                                        sizeof(want[t]));
            for (int i = 0; i < LONG; i++)
                assert_true(copy_to_host(GRAD)[i] ==
                            gradient(3, (uint32_t)(i % N)));
        }
}

/* Runs three updates of a matrix on the CPU. ret: the parameter, then its
 * states, of `most` elements each. */
static void update_matrix(const struct pst_optim_options *o,
                          const int64_t size[2], struct pst_pool *threads,
                          float *ret, int64_t most)
{
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, size);
    const int64_t n = pst_meta_numel(&meta);
    float *grad = calloc((size_t)n, sizeof(float));
    void *from[3 + PST_OPTIM_MAX_STATES] = {
        grad,
        [1 + PST_OPTIM_MAX_STATES] = malloc(pst_optim_work(o, &meta) + 1)};
    struct pst_meta state;
    pst_task_fn run;

    assert_non_null(grad);
    assert_non_null(from[1 + PST_OPTIM_MAX_STATES]);
    assert_ok(pst_device_task(&pst_device_cpu, o->row->task, &run, &diag),
              &diag);
    memset(ret, 0, (size_t)most * (1 + PST_OPTIM_MAX_STATES) * sizeof(*ret));
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
        if (pst_optim_state(o, k, &meta, &state))
            from[1 + k] = ret + (1 + k) * most;
    for (int64_t i = 0; i < n; i++)
        ret[i] = whole((uint32_t)i) / 512;
    for (uint64_t s = 0; s < 3; s++) {
        const struct pst_update numbers = pst_optim_update(o->row, o, s, 0, 1);
        const struct pst_task task = {.dtype = PST_F32,
                                      .n = n,
                                      .to = ret,
                                      .from = from,
                                      .n_from = PST_COUNT(from),
                                      .meta = &meta,
                                      .update = &numbers,
                                      .pool = threads,
                                      .isa = pst_cpu_isa()};

        for (int64_t i = 0; i < n; i++)
            grad[i] = gradient((uint32_t)s, (uint32_t)i);
        run(&task);
    }
    free(grad);
    free(from[1 + PST_OPTIM_MAX_STATES]);
}

/* Products and sums of large matrices have the same bits with any number of
 * threads. */
static void matrices_keep_the_bits(void **state)
{
    static const int64_t sizes[][2] = {
        {300, 200}, {200, 300}, {260, 260}, {1000, 3}, {3, 1000}};
    const int64_t most = 300 * 260;
    const size_t all = (size_t)most * (1 + PST_OPTIM_MAX_STATES);
    float *one = malloc(2 * all * sizeof(float)), *many = one + all;
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    assert_non_null(one);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < PST_COUNT(sizes) && rows[r]->whole; i++) {
            struct pst_optim_options o;

            assert_ok(pst_optim_defaults(rows[r]->name, &o, &diag), &diag);
            update_matrix(&o, sizes[i], NULL, one, most);
            update_matrix(&o, sizes[i], pool, many, most);
            assert_memory_equal(one, many, all * sizeof(float));
            assert_true(one[2] != whole(2) / 512 && isfinite(one[2]));
        }
    free(one);
}

/* --- numbers that are not finite ------------------------------------------ */

/* Runs an update in which element i of the gradient is `odd`: its parameter and
 * states stay, all others change. */
static void expect_element_skipped(const struct pst_optim_options *o,
                                   unsigned isa, float odd, int i,
                                   struct pst_pool *threads)
{
    const int n = LONG - 1, near = i > 0 ? i - 1 : 1;
    const unsigned n_states = pst_optim_n_states(o->row, o);
    const uint64_t *words = (void *)on_host(WORDS);

    for (int k = 0; k < N_TENSORS; k++)
        fill(k, k == GRAD ? 0.25f : k == WORDS ? 0 : 0.5f);
    on_host(GRAD)[i] = odd;
    copy_to_device(GRAD);
    update(o, 3, n, 0, isa, threads, 5);
    (void)copy_to_host(WORDS);
    assert_int_equal(words[0], 5);
    assert_int_equal(words[1], 1);
    (void)copy_to_host(PARAM);
    for (int j = 0; j < n; j++)
        assert_true((on_host(PARAM)[j] == 0.5f) == (j == i));
    for (unsigned k = 0; k < n_states; k++) {
        const float *x = copy_to_host(STATE + (int)k);
        const bool unused = o->centered && o->momentum == 0 && k == 1;

        assert_true(x[i] == 0.5f && (x[near] == 0.5f) == unused);
    }
    on_host(GRAD)[i] = 0.5f; /* one that was not finite before is updated */
    copy_to_device(GRAD);
    on_host(STATE)[i] = INFINITY;
    copy_to_device(STATE);
    update(o, 3, n, 0, isa, threads, 6);
    (void)copy_to_host(WORDS);
    assert_int_equal(words[0], 5);
    assert_int_equal(words[1], 1);
    assert_true(copy_to_host(PARAM)[near] != 0.5f);
}

/* Runs an update in which element i of the gradient is `odd`: the whole
 * parameter stays, with its states. */
static void expect_parameter_skipped(const struct pst_optim_options *o,
                                     unsigned isa, float odd, int i,
                                     struct pst_pool *threads)
{
    const uint64_t *words = (void *)on_host(WORDS);

    shape_rank = o->row->matrices_only || threads == NULL ? 2 : 1;
    for (int k = 0; k < N_TENSORS; k++)
        fill(k, k == GRAD ? 0.25f : k == WORDS ? 0 : 0.5f);
    on_host(GRAD)[i] = odd;
    copy_to_device(GRAD);
    update(o, 3, LONG - 1, 0, isa, threads, 5);
    (void)copy_to_host(WORDS);
    assert_int_equal(words[0], 5);
    assert_int_equal(words[1], LONG - 1);
    for (int k = PARAM; k < WORDS; k++) {
        const float *x = copy_to_host(k);

        for (int j = 0; j < LONG && k != GRAD; j++)
            assert_true(x[j] == 0.5f);
    }
}

static void what_would_not_be_finite_stays(void **state)
{
    static const float odd[] = {INFINITY, NAN, 3e25f, -3e25f};
    static const int places[] = {0, 63, 64, 4096, 3 * 4096 + 6};
    static const struct {
        const char *name;
        struct pst_optim_options more;
        bool takes_large; /* large gradients are not squared, or lr is small */
        bool all;         /* the whole parameter stays */
    } rows[] = {
        {"adamw", {.weight_decay = 0.01}, false},
        {"sgd", {.lr = 1e20}, false},
        {"sgd", {.lr = 1e20, .momentum = 0.9}, false},
        {"sgd", {.lr = 1e20, .momentum = 0.9, .nesterov = true}, false},
        {"adam", {.weight_decay = 0.01}, false},
        {"adamax", {.weight_decay = 0.01}, true},
        {"lion", {.weight_decay = 0.01}, true},
        {"rmsprop", {.weight_decay = 0.01}, false},
        {"rmsprop", {.momentum = 0.9}, false},
        {"rmsprop", {.centered = true}, false},
        {"rmsprop", {.momentum = 0.9, .centered = true}, false},
        {"adagrad", {.weight_decay = 0.01}, false},
        {"adadelta", {.weight_decay = 0.01}, false},
        {"lamb", {.weight_decay = 0.01}, false},
        {"muon", {.momentum = 0.9}, true, true},
        {"muon", {.momentum = 0.9, .nesterov = true}, true, true},
        {"adafactor", {.weight_decay = 0.01}, false, true},
        {"schedulefree", {.weight_decay = 0.01}, false},
    };
    size_t n;
    const struct pst_optim *const *all = pst_optim_rows(&n);

    (void)state;
    for (size_t k = 0; k < PST_COUNT(rows); k++) {
        struct pst_optim_options o;

        if (is_elsewhere(rows[k].name))
            continue;
        assert_ok(pst_optim_defaults(rows[k].name, &o, &diag), &diag);
        o.weight_decay = rows[k].more.weight_decay;
        o.momentum = rows[k].more.momentum;
        o.nesterov = rows[k].more.nesterov;
        o.centered = rows[k].more.centered;
        o.lr = rows[k].more.lr > 0 ? rows[k].more.lr : 0.1;
        for (unsigned isa = PST_ISA_ANY; isa <= last_isa(); isa++)
            for (size_t i = 0; i < (rows[k].takes_large ? 2 : 4); i++)
                (rows[k].all ? expect_parameter_skipped
                             : expect_element_skipped)(
                    &o, isa, odd[i], places[(i + k) % PST_COUNT(places)],
                    i % 2 == 0 ? pool : NULL);
    }
    for (size_t i = 0; i < n; i++) {
        bool found = all[i]->task == NULL;

        for (size_t k = 0; k < PST_COUNT(rows); k++)
            found = found || strcmp(rows[k].name, all[i]->name) == 0;
        if (!found)
            fail_msg("no row here has optimizer %s", all[i]->name);
    }
}

/* With equal gradients the variance is a difference of numbers that become
 * equal: PyTorch's may get NaN from its root. */
static void variance_is_never_negative(void **state)
{
    struct pst_optim_options o;
    const uint64_t *words = (void *)on_host(WORDS);

    (void)state;
    assert_ok(pst_optim_defaults("rmsprop", &o, &diag), &diag);
    o.centered = true;
    o.alpha = 0.5;
    for (unsigned isa = PST_ISA_ANY; isa <= last_isa(); isa++) {
        begin();
        fill(WORDS, 0);
        for (int i = 0; i < N; i++)
            on_host(GRAD)[i] = gradient(0, 2) + 0.001f * (float)i;
        copy_to_device(GRAD);
        for (uint64_t s = 0; s < 100; s++)
            update(&o, s, N, 0, isa, NULL, 1);
        (void)copy_to_host(WORDS);
        assert_int_equal(words[1], 0);
        for (int i = 0; i < N; i++)
            assert_true(isfinite(copy_to_host(PARAM)[i]));
    }
}

/* The mean of a row without elements is NaN, and is in no state. */
static void nothing_changes_no_state(void **state)
{
    struct pst_optim_options o;
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    shape_rank = 2;
    for (size_t i = 1; i < n; i++) {
        if (is_elsewhere(rows[i]->name))
            continue;
        begin();
        for (int k = 0; k < PST_OPTIM_MAX_STATES; k++)
            fill(STATE + k, 1);
        o = rows[i]->defaults;
        o.row = rows[i];
        update(&o, 0, 0, 0, last_isa(), NULL, 0);
        for (unsigned k = 0; k < rows[i]->n_states; k++)
            if (copy_to_host(STATE + (int)k)[0] != 1)
                fail_msg("%s: state %u has changed", rows[i]->name, k);
    }
    shape_rank = 1;
}

/* Reports each row without a case or a task, by name. */
static void every_row_is_tested(void **state)
{
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        bool found = rows[i]->task == NULL || is_elsewhere(rows[i]->name);
        const json_t *c;
        pst_task_fn task;
        size_t k;

        if (!found &&
            pst_device_task(mem.device, rows[i]->task, &task, &diag) != PST_OK)
            fail_msg("optimizer %s: %s", rows[i]->name, diag.text);
        json_array_foreach(cases, k, c)
        {
            const json_t *name = json_object_get(c, "optimizer");

            found =
                found || strcmp(json_string_value(name), rows[i]->name) == 0;
        }
        if (!found)
            fail_msg("make_optim.py has no case of optimizer %s",
                     rows[i]->name);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_tested),
        cmocka_unit_test(updates_are_torchs),
        cmocka_unit_test(threads_keep_the_bits),
        cmocka_unit_test(values_are_limited),
        cmocka_unit_test(matrices_keep_the_bits),
        cmocka_unit_test(what_would_not_be_finite_stays),
        cmocka_unit_test(variance_is_never_negative),
        cmocka_unit_test(nothing_changes_no_state),
    };
    const size_t size = sizeof(float) * LONG * N_TENSORS;
    const char *golden = getenv("PST_GOLDEN");
    char path[1024];
    int failed = 1;

    pst_diag_init(&diag);
    (void)snprintf(path, sizeof(path), "%s/optim.json",
                   golden != NULL ? golden : "tests/golden");
    cases = json_load_file(path, 0, NULL);
    if (json_array_size(cases) > 0 && pst_pool_new(3, &pool, &diag) == PST_OK &&
        pst_device_open(pst_device_default(), 0, size, &mem, &diag) == PST_OK)
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    else
        (void)fprintf(stderr, "no cases (%s) or no device: %s\n", path,
                      diag.text);
    pst_device_close(&mem);
    pst_pool_free(pool);
    json_decref(cases);
    return failed;
}
