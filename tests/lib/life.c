// SPDX-License-Identifier: Apache-2.0
/*
 * Opens and closes: life TINY.pt2 ORDER.pt2 ORDER-MORE.pt2 TIMES FOLDER. Each
 * time another turn, below. Memory, open files and threads of the process do
 * not grow, not by a byte; with sanitizers nothing is left at the end either.
 * GLIBC_TUNABLES=glibc.malloc.tcache_count=0 in the environment: otherwise
 * memory that the allocator keeps for later counts, too.
 */
#include "tests/lib/drive.h"

#include <dirent.h>
#include <malloc.h>

#include "tests/sanitized.h"

#define MAX_INPUTS 12

static struct penstock_error error = PENSTOCK_INIT(error);
static const char *tiny, *order, *more, *folder;

static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    (void)fill_zeros(NULL, step, microbatch, input, dst);
    return *(int *)ctx;
}

/* --- turns ---------------------------------------------------------------- */

struct turn {
    penstock_model *model;
    penstock_session *session; /* NULL: no session is made */
};

static int train(const struct turn *t, int code)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    return penstock_train_step_fill(t->session, fill, &code, &result, &error);
}

static void step(struct turn *t)
{
    good(train(t, 0));
}

static void fail(struct turn *t)
{
    good(train(t, 0));
    require(train(t, 1) == PENSTOCK_ERR_CANCELLED);
}

static void do_nothing(struct turn *t)
{
    (void)t;
}

static void pass_forward(struct turn *t)
{
    const size_t n = penstock_count(t->model, PENSTOCK_INPUT);
    struct penstock_step result = PENSTOCK_INIT(result);
    const DLTensor *inputs[MAX_INPUTS];
    struct held held[MAX_INPUTS];
    double loss;

    require(n <= MAX_INPUTS);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(t->session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    good(penstock_forward(t->session, inputs, n, NULL, &error));
    good(penstock_evaluate(t->session, inputs, n, &loss, &error));
    good(penstock_forward_backward(t->session, inputs, n, &result, &error));
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

static void swap(struct turn *t)
{
    good(penstock_swap(t->session, "mid", more, NULL, 0, &error));
    good(train(t, 0));
    require(penstock_swap(t->session, "nobody", more, NULL, 0, &error) != 0);
}

static void save(struct turn *t)
{
    static bool again;

    if (again) {
        require(penstock_save(t->session, folder, &error) ==
                PENSTOCK_ERR_CONFIG);
        require(strcmp(error.id, "checkpoint.other-run") == 0 &&
                strstr(error.text, "penstock_load") != NULL);
        good(penstock_load(t->session, folder, NULL, &error));
    }
    again = true;
    good(train(t, 0));
    good(penstock_save(t->session, folder, &error));
    good(penstock_load(t->session, folder, NULL, &error));
    require(penstock_load(t->session, "/nowhere", NULL, &error) != 0);
}

static void refuse(struct turn *t)
{
    const struct penstock_option bad[] = {{"schedule", "none"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;
    penstock_model *model;

    config.options = bad;
    config.n_options = 1;
    require(penstock_session_new(t->model, &config, &session, &error) != 0);
    require(penstock_open("/nowhere.pt2", NULL, &model, &error) != 0);
}

static void call(struct turn *t)
{
    static const char text[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"float32\"},"
        "              \"b\": {\"dtype\": \"float32\"}},"
        " \"args\": [\"a\", \"b\"],"
        " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 10]},"
        "         {\"op\": \"aten.add.Tensor\", \"args\": [\"%a\", \"%b\"],"
        "          \"out\": [\"sum\"]}],"
        " \"returns\": [\"sum\"]}";
    struct penstock_tensor result = PENSTOCK_INIT(result);
    float array[6] = {1, 2, 3, 4, 5, 6};
    int64_t four = 4;
    DLTensor a = {.data = array,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = &four};
    DLTensor b = a;
    const struct penstock_operand operands[] = {{"a", &a, NULL, 0},
                                                {"b", &b, NULL, 0}};
    penstock_program *program;

    (void)t;
    b.data = array + 2;
    good(penstock_program_open(text, strlen(text), NULL, &program, &error));
    good(penstock_call(program, operands, 2, NULL, &error));
    good(penstock_result(program, 0, &result, &error));
    require(penstock_call(program, operands, 1, NULL, &error) != 0);
    penstock_program_close(program);
    require(penstock_program_open("{", 1, NULL, &program, &error) != 0);
}

static const struct {
    void (*play)(struct turn *turn);
    bool has_session;
    bool of_order; /* the model ORDER.pt2 */
} turns[] = {{do_nothing, false, false},  {do_nothing, true, false},
             {step, true, false},         {fail, true, false},
             {pass_forward, true, false}, {save, true, false},
             {swap, true, true},          {refuse, false, false},
             {call, false, false}};

#define N_TURNS (sizeof(turns) / sizeof(turns[0]))

static void open_and_close(unsigned number)
{
    const unsigned k = number % N_TURNS;
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {
        {"ranks", number / N_TURNS % 2 == 0 ? "1" : "2"},
        {"threads", "1"},
        {"keep", "1"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct turn turn = {0};

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 3;
    good(penstock_open(turns[k].of_order ? order : tiny, &open, &turn.model,
                       &error));
    if (turns[k].has_session)
        good(penstock_session_new(turn.model, &config, &turn.session, &error));
    turns[k].play(&turn);
    penstock_session_free(turn.session);
    penstock_close(turn.model);
}

/* --- what the process has ------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

static size_t allocated(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __sanitizer_get_current_allocated_bytes();
#else
    const struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
#endif
}

/* Number of files that are open, or of threads. */
static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t n = 0;

    require(dir != NULL);
    while (readdir(dir) != NULL)
        n++;
    (void)closedir(dir);
    return n;
}

static size_t mapped(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    require(file != NULL && fscanf(file, "%lu", &pages) == 1);
    (void)fclose(file);
    return pages * 4096;
}

int main(int argc, char **argv)
{
    const unsigned warm = 4 * N_TURNS;
    size_t bytes, then, files, threads, pages;

    require(argc == 6);
    tiny = argv[1];
    order = argv[2];
    more = argv[3];
    folder = argv[5];
    for (unsigned i = 0; i < warm; i++)
        open_and_close(i);
    bytes = allocated();
    files = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    pages = mapped();
    for (unsigned i = 0; i < (unsigned)atoi(argv[4]); i++)
        open_and_close(i);
    then = allocated();
    printf("allocated %zu, then %zu; mapped %zu, then %zu\n", bytes, then,
           pages, mapped());
    require(then == bytes);
    /* valgrind counts nothing, and maps memory of its own. */
    require(SANITIZED || then == 0 || mapped() <= pages + (1 << 20));
    require(entries("/proc/self/fd") == files);
    require(entries("/proc/self/task") == threads);
    return 0;
}
