// SPDX-License-Identifier: Apache-2.0
/*
 * gpu TINY.pt2
 * gpu bits MODEL.pt2...: also gradients of inputs
 *
 * Tensors in memory of a GPU give the bits of the same session with tensors of
 * the host: losses, outputs, gradients, parameters. They are read in place, or
 * copied by their strides. Runs on the driver of tests, whose memory the host
 * cannot access, and which does work late, or on a GPU.
 */
#include "tests/lib/gpu/tensor.h"

enum { MOST = 12, STEPS = 4, MOST_BYTES = 65536 };

static struct penstock_error error = PENSTOCK_INIT(error);

/* The numbers that a run has computed, in the order of the calls. */
struct record {
    char bytes[MOST_BYTES];
    char *end;
};

struct run {
    const char *path, *device;
    const char *option, *value; /* one more of the session; or NULL */
    enum layout layout;
    int gpu; /* the GPU that has inputs and results */
    penstock_model *model;
    penstock_session *session;
    struct gpu_tensor inputs[MOST];
    const DLTensor *list[MOST];
    size_t n;
    uint64_t bytes; /* total size of the inputs that a step reads */
};

static void open_session(struct run *r)
{
    const struct penstock_option options[] = {
        {"microbatches", "2"}, {"threads", "1"}, {"optimizer", "adamw"},
        {"device", r->device}, {"lr", "0.01"},   {r->option, r->value}};
    struct penstock_session_config config = PENSTOCK_INIT(config);

    config.options = options;
    config.n_options = r->option != NULL ? 6 : 5;
    good(penstock_open(r->path, NULL, &r->model, &error));
    good(penstock_session_new(r->model, &config, &r->session, &error));
    r->n = penstock_session_count(r->session, PENSTOCK_INPUT);
    require(r->n <= MOST);
}

static void close_session(struct run *r)
{
    penstock_session_free(r->session);
    penstock_close(r->model);
}

static struct penstock_info info_of(const struct run *r,
                                    enum penstock_kind kind, size_t i)
{
    struct penstock_info info = PENSTOCK_INIT(info);

    good(penstock_session_describe(r->session, kind, i, &info, &error));
    return info;
}

/* Makes the inputs of a step. */
static void make_inputs(struct run *r, unsigned step)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct penstock_info info = info_of(r, PENSTOCK_INPUT, i);
        const size_t n = count_of(&info);
        char *values = calloc(n + 1, size_of(&info));

        require(values != NULL);
        for (size_t k = 0; k < n; k++)
            set_element(values, &info, k, (unsigned)(7 * k + 3 * step + i));
        tensor_init(&r->inputs[i], r->layout, r->gpu, &info, values);
        r->list[i] = &r->inputs[i].held.tensor;
        free(values);
    }
}

static void free_inputs(struct run *r)
{
    for (size_t i = 0; i < r->n; i++)
        tensor_fini(&r->inputs[i]);
}

/* Takes a result that `call` copies to the DLTensor `dst`. */
#define take(r, into, info, call)                                              \
    do {                                                                       \
        static char zeros[4096];                                               \
        struct gpu_tensor got;                                                 \
        DLTensor *dst = &got.held.tensor;                                      \
                                                                               \
        require(count_of(&(info)) * size_of(&(info)) <= sizeof(zeros));        \
        tensor_init(&got, (r)->layout, (r)->gpu, &(info), zeros);              \
        good(call);                                                            \
        tensor_take(&got, &(info), &(into)->end);                              \
        tensor_fini(&got);                                                     \
    } while (0)

static struct penstock_copies copies_of(const struct run *r)
{
    struct penstock_copies c = PENSTOCK_INIT(c);

    good(penstock_session_copies(r->session, &c, &error));
    return c;
}

/* Inputs that a step must read in place, or copy; SOME: either. */
enum reads { SOME, ALL_IN_PLACE, ALL_COPIED, BOTH };

static void check_copies(struct run *r, enum reads reads)
{
    const struct penstock_copies c = copies_of(r);

    if (r->bytes == 0)
        r->bytes = c.in_place + c.read;
    require(c.in_place + c.read == r->bytes && r->bytes > 0 && c.written == 0);
    require(reads != ALL_IN_PLACE || c.read == 0);
    require(reads != ALL_COPIED || c.in_place == 0);
    require(reads != BOTH || (c.read > 0 && c.in_place > 0));
}

static void take_gradients(struct run *r, struct record *to)
{
    for (size_t i = 0;
         i < penstock_session_count(r->session, PENSTOCK_PARAMETER); i++) {
        const struct penstock_info info = info_of(r, PENSTOCK_PARAMETER, i);

        if (info.trained)
            take(r, to, info,
                 penstock_gradient(r->session, info.name, dst, &error));
    }
}

static void take_state(struct run *r, struct record *to)
{
    for (int kind = PENSTOCK_PARAMETER; kind <= PENSTOCK_BUFFER; kind++)
        for (size_t i = 0; i < penstock_session_count(r->session, kind); i++) {
            const struct penstock_info info = info_of(r, kind, i);

            take(r, to, info, penstock_get(r->session, info.name, dst, &error));
        }
}

/* Copies a parameter out, and sets it again. */
static void set_again(struct run *r)
{
    const struct penstock_info info = info_of(r, PENSTOCK_PARAMETER, 0);
    struct record bytes = {.end = bytes.bytes};
    struct gpu_tensor from;

    take(r, &bytes, info, penstock_get(r->session, info.name, dst, &error));
    for (size_t k = 0; k < count_of(&info); k++)
        ((float *)(void *)bytes.bytes)[k] *= .5F;
    tensor_init(&from, r->layout, r->gpu, &info, bytes.bytes);
    good(penstock_set(r->session, info.name, &from.held.tensor, &error));
    require(copies_of(r).read == count_of(&info) * sizeof(float));
    tensor_fini(&from);
}

static void add_double(struct record *to, double value)
{
    memcpy(to->end, &value, sizeof(value));
    to->end += sizeof(value);
}

/* Trains, and takes all results. */
static void train(struct run *r, enum reads reads, struct record *to)
{
    to->end = to->bytes;
    open_session(r);
    for (unsigned k = 0; k < STEPS; k++) {
        struct penstock_step step = PENSTOCK_INIT(step);
        double loss;

        /* The same ones three times: the third step replays what the second
         * has recorded. */
        if (k == 0 || k == STEPS - 1)
            make_inputs(r, k);
        good(penstock_train_step(r->session, r->list, r->n, &step, &error));
        check_copies(r, reads);
        add_double(to, step.loss);
        take_gradients(r, to);
        for (size_t i = 0; i < r->n && r->option != NULL; i++) {
            const struct penstock_info info = info_of(r, PENSTOCK_INPUT, i);

            if (info.dtype.code == kDLFloat || info.dtype.code == kDLBfloat)
                take(r, to, info,
                     penstock_input_gradient(r->session, i, dst, &error));
        }
        good(penstock_forward(r->session, r->list, r->n, &loss, &error));
        add_double(to, loss);
        for (size_t i = 0;
             i < penstock_session_count(r->session, PENSTOCK_OUTPUT); i++) {
            const struct penstock_info info = info_of(r, PENSTOCK_OUTPUT, i);

            take(r, to, info, penstock_output(r->session, i, dst, &error));
        }
        good(penstock_evaluate(r->session, r->list, r->n, &loss, &error));
        add_double(to, loss);
        if (k >= STEPS - 2)
            free_inputs(r);
        if (k == 1)
            set_again(r);
    }
    take_state(r, to);
    require(to->end < to->bytes + MOST_BYTES);
    close_session(r);
}

static void compare(const struct record *a, const struct record *b)
{
    require(a->end - a->bytes == b->end - b->bytes && a->end > a->bytes);
    require(memcmp(a->bytes, b->bytes, (size_t)(a->end - a->bytes)) == 0);
}

/* All layouts of inputs and results, on one GPU, and on two. all: one GPU reads
 * all of the model's inputs in place if they have no gaps; otherwise some are
 * bool, or divided in another dimension than the first. */
static void bits(const char *path, const char *option, const char *value,
                 bool all)
{
    static const char *const devices[] = {"cuda:0", "cuda:1", "cuda:0,cuda:1"};
    static struct record host, here;

    for (int d = all || gpu_count() == 1 ? 0 : 1; d < (gpu_count() > 1 ? 3 : 1);
         d++)
        for (int layout = HOST; layout < N_LAYOUTS; layout++) {
            struct run r = {.path = path,
                            .device = devices[d],
                            .option = option,
                            .value = value,
                            .layout = (enum layout)layout,
                            .gpu = d == 1};
            const enum reads one = layout == DENSE ? ALL_IN_PLACE : ALL_COPIED;
            const size_t before[] = {gpu_bytes_free(0),
                                     gpu_bytes_free(gpu_count() > 1)};

            train(&r,
                  layout == HOST    ? ALL_COPIED
                  : d < 2 && all    ? one
                  : layout == DENSE ? BOTH
                                    : SOME,
                  layout == HOST ? &host : &here);
            if (layout != HOST)
                compare(&host, &here);
            if (!driver_is_of_tests())
                continue; /* others use the GPU, too, and so do modules */
            require(gpu_bytes_free(0) == before[0]);
            require(gpu_bytes_free(1) == before[1]);
        }
}

/* --- refusals ------------------------------------------------------------- */

static void refused(int status, const char *text)
{
    if (status == PENSTOCK_ERR_SHAPE &&
        strcmp(error.id, "library.device") == 0 &&
        strstr(error.text, text) != NULL && error.remedy[0] != '\0')
        return;
    fprintf(stderr, "%d: %s [%s], and not \"%s\"\n", status, error.text,
            error.id, text);
    exit(1);
}

static int try_step(struct run *r)
{
    struct penstock_step step = PENSTOCK_INIT(step);

    return penstock_train_step(r->session, r->list, r->n, &step, &error);
}

static void refusals(const char *path)
{
    struct run r = {.path = path, .device = "cuda:0", .layout = DENSE};
    struct run cpu = {.path = path, .device = "cpu", .layout = DENSE};
    DLTensor *first = &r.inputs[0].held.tensor;
    static const char zeros[4096];
    int64_t back[2] = {-3, -1};
    char *block;
    void *data;

    open_session(&r);
    make_inputs(&r, 0);
    data = first->data;
    first->device.device_id = 1;
    refused(try_step(&r), "is in the memory of GPU 1, and the session computes "
                          "on GPU 0");
    first->device.device_id = -1;
    refused(try_step(&r), "is on device -1 of type 2");
    first->device = (DLDevice){kDLCUDAManaged, 0};
    refused(try_step(&r), "of type 13");
    first->device = (DLDevice){kDLCUDA, 0};
    first->byte_offset = 1;
    require(try_step(&r) == PENSTOCK_ERR_SHAPE &&
            strcmp(error.id, "library.tensor") == 0 &&
            strstr(error.text, "is no multiple of 8 bytes") != NULL);
    first->byte_offset = 0;
    first->data = r.inputs[0].held.memory;
    refused(try_step(&r), "is not in the memory of GPU 0, as it says");
    if (driver_is_of_tests()) {
        first->data = gpu_alloc(1, 4096);
        refused(try_step(&r), "is not in the memory of GPU 0, as it says");
        gpu_free(1, first->data);
        refused(try_step(&r), "the memory was freed");
        first->data = (char *)data + 4096 - 8; /* beyond the block's end */
        refused(try_step(&r), "is not in the memory of GPU 0, as it says");
    }
    first->strides = back; /* from the last element of the block */
    block = gpu_alloc(0, 4096);
    gpu_put(0, block, zeros, sizeof(zeros));
    first->data = block + 4096 - sizeof(int64_t);
    good(try_step(&r));
    first->data = block;
    if (driver_is_of_tests())
        refused(try_step(&r), "is not in the memory of GPU 0, as it says");
    gpu_free(0, block);
    first->strides = NULL;
    first->data = data;
    good(try_step(&r));
    free_inputs(&r);
    if (driver_is_of_tests())
        refused(try_step(&r), "the memory was freed");
    close_session(&r);
    open_session(&cpu);
    make_inputs(&cpu, 0);
    refused(try_step(&cpu), "is in the memory of GPU 0, and the session "
                            "computes on the CPU");
    free_inputs(&cpu);
    close_session(&cpu);
}

static void refuses_programs(void)
{
    static const char text[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"float32\"}}, \"args\": [\"a\"],"
        " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 10]}],"
        " \"returns\": []}";
    int64_t four = 4;
    DLTensor a = {.data = gpu_alloc(0, 16),
                  .device = {kDLCUDA, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = &four};
    const struct penstock_operand operand = {"a", &a, NULL, 0};
    penstock_program *program;

    good(penstock_program_open(text, strlen(text), NULL, &program, &error));
    refused(penstock_call(program, &operand, 1, NULL, &error),
            "the operand 'a' is in the memory of GPU 0, and programs run on "
            "the CPU");
    penstock_program_close(program);
    gpu_free(0, a.data);
}

/* --- views ---------------------------------------------------------------- */

/* A view is memory of the GPU, has the session's values without a copy, and is
 * as after the last call. */
static void views(const char *path)
{
    const int gpu = gpu_count() > 1;
    struct run r = {.path = path,
                    .device = gpu == 1 ? "cuda:1" : "cuda:0",
                    .layout = DENSE,
                    .gpu = gpu};
    static struct record a, b;
    struct penstock_info info;
    DLTensor view;
    size_t last;

    open_session(&r);
    last = penstock_session_count(r.session, PENSTOCK_PARAMETER);
    do
        info = info_of(&r, PENSTOCK_PARAMETER, --last);
    while (!info.trained);
    good(penstock_view(r.session, PENSTOCK_PARAMETER, last, &view, &error));
    require(view.device.device_type == kDLCUDA && view.device.device_id == gpu);
    for (unsigned k = 0; k < 40; k++) {
        const size_t bytes = count_of(&info) * size_of(&info);

        make_inputs(&r, k);
        good(try_step(&r));
        gpu_get(gpu, a.bytes, view.data, bytes);
        b.end = b.bytes;
        take(&r, &b, info, penstock_get(r.session, info.name, dst, &error));
        require(memcmp(a.bytes, b.bytes, bytes) == 0);
        free_inputs(&r);
    }
    close_session(&r);
}

/* TF32 wants a GPU, and cuBLASLt, which the tests' driver does not come with.
 */
static void refuses_tf32(const char *path)
{
    static const struct {
        const char *device, *id;
        int status;
    } cases[] = {{"cpu", "device.tf32", PENSTOCK_ERR_USAGE},
                 {"cuda:0", "device.cublaslt", PENSTOCK_ERR_UNSUPPORTED}};

    for (size_t i = 0; i < (driver_is_of_tests() ? 2 : 1); i++) {
        const struct penstock_option options[] = {{"device", cases[i].device},
                                                  {"tf32", "yes"}};
        struct penstock_session_config config = PENSTOCK_INIT(config);
        struct run r = {0};

        config.options = options;
        config.n_options = 2;
        good(penstock_open(path, NULL, &r.model, &error));
        require(penstock_session_new(r.model, &config, &r.session, &error) ==
                    cases[i].status &&
                strcmp(error.id, cases[i].id) == 0);
        penstock_close(r.model);
    }
}

/* Calls leave the thread's current context as it was: another GPU's, or none.
 */
static void contexts(const char *path)
{
    struct run r = {.path = path, .device = "cuda:0", .layout = STRIDED};
    const int other = gpu_count() > 1;

    for (int k = 0; k < 2; k++) {
        const struct penstock_option wrong[] = {{"device", "cuda:99"}};
        struct penstock_session_config config = PENSTOCK_INIT(config);
        void *before = NULL, *now;
        DLTensor view;
        double loss;

#define same(call)                                                             \
    do {                                                                       \
        driver_call(cuCtxSetCurrent, (void *), before);                        \
        call;                                                                  \
        driver_call(cuCtxGetCurrent, (void **), &now);                         \
        require(now == before);                                                \
    } while (0)

        if (k == 0) {
            gpu_enter(other);
            driver_call(cuCtxGetCurrent, (void **), &before);
        }
        config.options = wrong;
        config.n_options = 1;
        good(penstock_open(path, NULL, &r.model, &error));
        same(require(
            penstock_session_new(r.model, &config, &r.session, &error) != 0));
        penstock_close(r.model);
        same(open_session(&r));
        make_inputs(&r, 0);
        same(good(try_step(&r)));
        same(good(penstock_forward(r.session, r.list, r.n, &loss, &error)));
        same(good(penstock_evaluate(r.session, r.list, r.n, &loss, &error)));
        same(good(
            penstock_view(r.session, PENSTOCK_PARAMETER, 0, &view, &error)));
        r.inputs[0].held.tensor.device.device_id = 9;
        same(require(try_step(&r) != 0));
        free_inputs(&r);
        same(close_session(&r));
#undef same
    }
}

/* --- recordings ----------------------------------------------------------- */

/* Inputs in `n` sets of arrays by turns: the third step with a set replays what
 * the second has recorded, up to as many sets as an action has recordings. The
 * losses are those without recordings. */
static void replays(const char *path, unsigned n, bool has_place)
{
    const unsigned long *launches = driver_look("driver_graph_launches");
    struct run r[2] = {{.path = path, .device = "cuda:0", .layout = DENSE},
                       {.path = path,
                        .device = "cuda:0",
                        .layout = DENSE,
                        .option = "no-graphs",
                        .value = "yes"}};
    static struct run sets[5];

    open_session(&r[0]);
    open_session(&r[1]);
    for (unsigned k = 0; k < n; k++) {
        sets[k] = r[0];
        make_inputs(&sets[k], k);
    }
    for (unsigned k = 0; k < 4 * n; k++) {
        const struct run *set = &sets[k % n];
        struct penstock_step step[2] = {PENSTOCK_INIT(step[0]),
                                        PENSTOCK_INIT(step[1])};
        const unsigned long before = launches != NULL ? *launches : 0;

        good(penstock_train_step(r[0].session, set->list, set->n, &step[0],
                                 &error));
        /* The sum of the squares of gradients, and updates, are no actions. */
        require(launches == NULL || k < 2 * n ||
                (*launches - before > 2) == has_place);
        good(penstock_train_step(r[1].session, set->list, set->n, &step[1],
                                 &error));
        require(step[0].loss == step[1].loss);
    }
    for (unsigned k = 0; k < n; k++)
        free_inputs(&sets[k]);
    close_session(&r[0]);
    close_session(&r[1]);
}

int main(int argc, char **argv)
{
    require(argc >= 2);
    driver_call(cuInit, (unsigned), 0);
    if (strcmp(argv[1], "bits") == 0) {
        for (int i = 2; i < argc; i++)
            bits(argv[i], "input-gradients", "*", false);
        return 0;
    }
    bits(argv[1], NULL, NULL, true);
    refusals(argv[1]);
    refuses_programs();
    refuses_tf32(argv[1]);
    views(argv[1]);
    contexts(argv[1]);
    for (unsigned n = 1; n <= 5; n += 2)
        replays(argv[1], n, n <= 4);
    return 0;
}
