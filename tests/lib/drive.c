// SPDX-License-Identifier: Apache-2.0
/*
 * Does with the library what its arguments say, for bits.py:
 *
 *   open PATH [NAME=VALUE...]     session [NAME=VALUE...]     close
 *   data FILE...     contiguous rows of all steps, a file for each input
 *   train arrays|strided|callback|apart N    prints the loss of each step;
 *                    apart: by penstock_forward_backward and penstock_update
 *   forward FOLDER   the inputs of the next step; writes FOLDER/out.I
 *   evaluate ROWS    the first rows; prints the mean loss
 *   state FOLDER     writes FOLDER/NAME for each parameter and buffer
 *   set FOLDER       reads them
 *   grads FOLDER     writes FOLDER/NAME for each gradient of the last step
 *   input-grads FOLDER      the same for each floating-point input
 *   half arrays|strided|callback      the first part of a step
 *   keep             sets each gradient to what it is
 *   change set|add NAME FILE      prints the error if it fails
 *   update           the second part; prints loss and norm
 *   swap MODULE FILE [NAME=VALUE...]      prints the error if it fails
 *   save FOLDER      load FOLDER
 *   refuse FOLDER    a save that must fail; prints the error
 */
#include "tests/lib/drive.h"

#define MAX_INPUTS 12

static struct penstock_error error = PENSTOCK_INIT(error);
static penstock_model *model;
static penstock_session *session;
static char *data[MAX_INPUTS];
static size_t steps; /* for which there are rows */

static void print_message(void *ctx, const char *text)
{
    (void)ctx;
    printf("message %s\n", text);
}

static char *read_file(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rb");
    char *bytes;
    long size;

    require(f != NULL && fseek(f, 0, SEEK_END) == 0);
    size = ftell(f);
    require(size >= 0 && fseek(f, 0, SEEK_SET) == 0);
    bytes = malloc((size_t)size + 1);
    require(bytes != NULL && fread(bytes, 1, (size_t)size, f) == (size_t)size);
    (void)fclose(f);
    *ret_size = (size_t)size;
    return bytes;
}

static void write_file(const char *folder, const char *name, const void *bytes,
                       size_t size)
{
    char path[4096];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "wb");
    require(f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

/* Inputs of the session, which the callback cannot ask. */
static struct penstock_info infos[MAX_INPUTS];

static const char *rows_at(size_t i, size_t step)
{
    const struct penstock_info info = infos[i];

    require(step < steps);
    return data[i] + step * count_of(&info) * size_of(&info);
}

/* Takes the options NAME=VALUE that follow an argument. */
static size_t options(char **argv, struct penstock_option *ret)
{
    size_t n = 0;

    for (; argv[n] != NULL && strchr(argv[n], '=') != NULL; n++) {
        char *equal = strchr(argv[n], '=');

        *equal = '\0';
        ret[n] = (struct penstock_option){argv[n], equal + 1};
    }
    return n;
}

static size_t open_model(char **argv)
{
    struct penstock_open_config config = PENSTOCK_INIT(config);
    struct penstock_option all[32];

    config.options = all;
    config.n_options = options(argv + 1, all);
    config.message = print_message;
    good(penstock_open(argv[0], &config, &model, &error));
    return 1 + config.n_options;
}

static size_t make_session(char **argv)
{
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_option all[32];

    config.options = all;
    config.n_options = options(argv, all);
    config.message = print_message;
    good(penstock_session_new(model, &config, &session, &error));
    require(penstock_session_bytes(session) > 0);
    return config.n_options;
}

static size_t read_data(char **argv)
{
    const size_t n = penstock_count(model, PENSTOCK_INPUT);

    require(n <= MAX_INPUTS);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        size_t size;

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        infos[i] = info;
        free(data[i]);
        data[i] = read_file(argv[i], &size);
        steps = size / (count_of(&info) * size_of(&info));
        require(size == steps * count_of(&info) * size_of(&info));
    }
    return n;
}

/* Copies the rows of a microbatch; all inputs are divided along dimension 0. */
static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    size_t size = dst->dtype.bits / 8;

    (void)ctx;
    for (int d = 0; d < dst->ndim; d++)
        size *= (size_t)dst->shape[d];
    memcpy(dst->data, rows_at(input, step) + microbatch * size, size);
    return 0;
}

/* Finished steps of the session. */
static uint64_t next_step;

/* Makes a step in two calls, with other calls between them. */
static void step_apart(const DLTensor *const *inputs, size_t n,
                       struct penstock_step *result)
{
    struct penstock_step first = PENSTOCK_INIT(first), refused = first;
    double loss;

    good(penstock_forward_backward(session, inputs, n, &first, &error));
    require(first.step == next_step && first.applied == 0);
    require(penstock_train_step(session, inputs, n, &refused, &error) ==
            PENSTOCK_ERR_USAGE);
    if (next_step % 2 == 1)
        good(penstock_forward(session, inputs, n, &loss, &error));
    good(penstock_update(session, result, &error));
    require(result->loss == first.loss && result->lr == first.lr);
    require(memcmp(&result->grad_norm, &first.grad_norm, sizeof(double)) == 0);
}

static void step_on_arrays(const char *mode, size_t step,
                           struct penstock_step *result)
{
    const bool strided = strstr(mode, "strided") != NULL;
    const size_t n = penstock_count(model, PENSTOCK_INPUT);
    const DLTensor *inputs[MAX_INPUTS];
    struct held held[MAX_INPUTS];

    for (size_t i = 0; i < n; i++) {
        const struct penstock_info info = infos[i];
        const char *rows = rows_at(i, step);

        if (strided) {
            held_init_strided(&held[i], &info, rows);
        } else {
            held_init(&held[i], &info);
            memcpy(held[i].memory, rows, count_of(&info) * size_of(&info));
        }
        inputs[i] = &held[i].tensor;
    }
    if (result != NULL && strcmp(mode, "apart") == 0)
        step_apart(inputs, n, result);
    else if (result != NULL && strncmp(mode, "half", 4) == 0)
        good(penstock_forward_backward(session, inputs, n, result, &error));
    else if (result != NULL)
        good(penstock_train_step(session, inputs, n, result, &error));
    else {
        double loss;

        good(penstock_forward(session, inputs, n, &loss, &error));
        printf("forward %a\n", loss);
    }
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

static size_t train(char **argv)
{
    const size_t n = strtoul(argv[1], NULL, 10);

    for (size_t k = 0; k < n; k++) {
        struct penstock_step result = PENSTOCK_INIT(result);

        if (strcmp(argv[0], "callback") == 0)
            good(
                penstock_train_step_fill(session, fill, NULL, &result, &error));
        else
            step_on_arrays(argv[0], next_step, &result);
        require(result.step == next_step + 1 && result.applied == 1);
        next_step = result.step;
        printf("loss %a\n", result.loss);
    }
    return 2;
}

static size_t forward(char **argv)
{
    const size_t n = penstock_count(model, PENSTOCK_OUTPUT);

    step_on_arrays("strided", next_step, NULL);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held plain, strided;
        char name[32];

        good(penstock_session_describe(session, PENSTOCK_OUTPUT, i, &info,
                                       &error));
        held_init(&plain, &info);
        good(penstock_output(session, i, &plain.tensor, &error));
        held_init_strided(&strided, &info, plain.memory);
        memset(strided.memory, 0, 2 * count_of(&info) * size_of(&info));
        good(penstock_output(session, i, &strided.tensor, &error));
        held_fini(&strided);
        (void)snprintf(name, sizeof(name), "out.%zu", i);
        write_file(argv[0], name, plain.memory,
                   count_of(&info) * size_of(&info));
        printf("output %s", info.name);
        for (int d = 0; d < info.ndim; d++)
            printf(" %lld", (long long)info.shape[d]);
        printf("\n");
        held_fini(&plain);
    }
    return 1;
}

/* Evaluates rows of the first input that are in all of its data; other inputs
 * have as many rows more or less as they have in a microbatch. */
static size_t evaluate(char **argv)
{
    const size_t n = penstock_count(model, PENSTOCK_INPUT);
    const int64_t rows = strtol(argv[0], NULL, 10);
    const DLTensor *inputs[MAX_INPUTS];
    struct held held[MAX_INPUTS];
    double loss = 0;
    int64_t each = 0;

    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        int64_t shape[MAX_DIMS];

        good(penstock_describe(model, PENSTOCK_INPUT, i, &info, &error));
        memcpy(shape, info.shape, (size_t)info.ndim * sizeof(shape[0]));
        each = i == 0 ? shape[0] : each;
        shape[0] = rows * shape[0] / each;
        info.shape = shape;
        if (i % 2 == 0) {
            held_init_strided(&held[i], &info, data[i]);
        } else {
            held_init(&held[i], &info);
            memcpy(held[i].memory, data[i], count_of(&info) * size_of(&info));
        }
        inputs[i] = &held[i].tensor;
    }
    good(penstock_evaluate(session, inputs, n, &loss, &error));
    printf("evaluated %a\n", loss);
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
    return 1;
}

/* Writes or sets all parameters and buffers. */
static size_t state(char **argv, bool sets)
{
    for (int kind = PENSTOCK_PARAMETER; kind <= PENSTOCK_BUFFER; kind++)
        for (size_t i = 0; i < penstock_session_count(session, kind); i++) {
            struct penstock_info info = PENSTOCK_INIT(info);
            char path[4096];
            struct held h;
            size_t size;

            good(penstock_session_describe(session, kind, i, &info, &error));
            held_init(&h, &info);
            size = count_of(&info) * size_of(&info);
            if (sets) {
                (void)snprintf(path, sizeof(path), "%s/%s", argv[0], info.name);
                free(h.memory);
                h.memory = read_file(path, &size);
                h.tensor.data = h.memory;
                good(penstock_set(session, info.name, &h.tensor, &error));
            } else {
                good(penstock_get(session, info.name, &h.tensor, &error));
                write_file(argv[0], info.name, h.memory, size);
            }
            held_fini(&h);
        }
    return 1;
}

static size_t grads(char **argv)
{
    for (size_t i = 0; i < penstock_count(model, PENSTOCK_PARAMETER); i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held h;

        good(penstock_describe(model, PENSTOCK_PARAMETER, i, &info, &error));
        held_init(&h, &info);
        if (info.trained) {
            good(penstock_gradient(session, info.name, &h.tensor, &error));
            write_file(argv[0], info.name, h.memory,
                       count_of(&info) * size_of(&info));
        }
        held_fini(&h);
    }
    return 1;
}

/* Reads each gradient twice, into an array with gaps, too. */
static size_t input_grads(char **argv)
{
    for (size_t i = 0; i < penstock_count(model, PENSTOCK_INPUT); i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held plain, strided, copy;

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        if (info.dtype.code != kDLFloat && info.dtype.code != kDLBfloat)
            continue;
        held_init(&plain, &info);
        memset(plain.memory, 0x55, count_of(&info) * size_of(&info));
        good(penstock_input_gradient(session, i, &plain.tensor, &error));
        held_init_strided(&copy, &info, plain.memory);
        held_init_strided(&strided, &info, plain.memory);
        for (size_t k = 0; k < count_of(&info); k++)
            memset(element_of(&strided, &info, k), 0x55, size_of(&info));
        good(penstock_input_gradient(session, i, &strided.tensor, &error));
        require(memcmp(strided.memory, copy.memory,
                       (2 * count_of(&info) + 3) * size_of(&info)) == 0);
        write_file(argv[0], info.name, plain.memory,
                   count_of(&info) * size_of(&info));
        held_fini(&plain);
        held_fini(&strided);
        held_fini(&copy);
    }
    return 1;
}

#ifndef OLD_HEADER
static size_t run_half_step(char **argv)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    if (strcmp(argv[0], "callback") == 0)
        good(penstock_forward_backward_fill(session, fill, NULL, &result,
                                            &error));
    else
        step_on_arrays(strcmp(argv[0], "strided") == 0 ? "half-strided"
                                                       : "half",
                       next_step, &result);
    require(result.step == next_step && result.applied == 0);
    return 1;
}

static void set_gradient(const struct penstock_info *info, const char *bytes,
                         bool add)
{
    struct held h;

    held_init_strided(&h, info, bytes);
    if (penstock_set_gradient(session, info->name, &h.tensor, add, &error) != 0)
        printf("refused %s %s\n", error.id, info->name);
    held_fini(&h);
}

static size_t keep(void)
{
    for (size_t i = 0; i < penstock_session_count(session, PENSTOCK_PARAMETER);
         i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held h;

        good(penstock_session_describe(session, PENSTOCK_PARAMETER, i, &info,
                                       &error));
        held_init(&h, &info);
        good(penstock_gradient(session, info.name, &h.tensor, &error));
        set_gradient(&info, h.memory, false);
        held_fini(&h);
    }
    return 0;
}

static size_t change(char **argv)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    size_t at, size;
    char *bytes;

    good(penstock_find(model, PENSTOCK_PARAMETER, argv[1], &at, &error));
    good(penstock_session_describe(session, PENSTOCK_PARAMETER, at, &info,
                                   &error));
    bytes = read_file(argv[2], &size);
    require(size == count_of(&info) * size_of(&info));
    info.name = argv[1]; /* it may be another one of its names */
    set_gradient(&info, bytes, strcmp(argv[0], "add") == 0);
    free(bytes);
    return 3;
}

static size_t update(void)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    good(penstock_update(session, &result, &error));
    require(result.step == next_step + 1 && result.applied == 1);
    next_step = result.step;
    printf("loss %a\nnorm %a\n", result.loss, result.grad_norm);
    return 0;
}

/* Calls that the header of version 0 does not have. */
static size_t obey_new(char **argv)
{
    const char *what = argv[0];

    return strcmp(what, "half") == 0     ? run_half_step(argv + 1)
           : strcmp(what, "keep") == 0   ? keep()
           : strcmp(what, "change") == 0 ? change(argv + 1)
           : strcmp(what, "update") == 0 ? update()
                                         : 1000;
}
#else
static size_t obey_new(char **argv)
{
    (void)argv;
    return 1000;
}
#endif

static size_t swap(char **argv)
{
    struct penstock_option all[8];
    const size_t n = options(argv + 2, all);

    if (penstock_swap(session, argv[0], argv[1], all, n, &error) == 0)
        printf("swapped\n");
    else
        printf("refused %s\n", error.id);
    return 2 + n;
}

static size_t load(char **argv)
{
    good(penstock_load(session, argv[0], &next_step, &error));
    printf("loaded %llu\n", (unsigned long long)next_step);
    return 1;
}

static size_t save(char **argv)
{
    good(penstock_save(session, argv[0], &error));
    return 1;
}

static size_t refuse(char **argv)
{
    require(penstock_save(session, argv[0], &error) != 0);
    printf("refused %s %s\n", error.id, error.text);
    return 1;
}

static size_t close_all(void)
{
    penstock_session_free(session);
    penstock_close(model);
    session = NULL;
    model = NULL;
    next_step = 0;
    return 0;
}

static size_t run_command(char **argv)
{
    const char *what = argv[0];

    return 1 + (strcmp(what, "open") == 0          ? open_model(argv + 1)
                : strcmp(what, "session") == 0     ? make_session(argv + 1)
                : strcmp(what, "data") == 0        ? read_data(argv + 1)
                : strcmp(what, "train") == 0       ? train(argv + 1)
                : strcmp(what, "forward") == 0     ? forward(argv + 1)
                : strcmp(what, "evaluate") == 0    ? evaluate(argv + 1)
                : strcmp(what, "state") == 0       ? state(argv + 1, false)
                : strcmp(what, "set") == 0         ? state(argv + 1, true)
                : strcmp(what, "grads") == 0       ? grads(argv + 1)
                : strcmp(what, "input-grads") == 0 ? input_grads(argv + 1)
                : strcmp(what, "swap") == 0        ? swap(argv + 1)
                : strcmp(what, "save") == 0        ? save(argv + 1)
                : strcmp(what, "load") == 0        ? load(argv + 1)
                : strcmp(what, "refuse") == 0      ? refuse(argv + 1)
                : strcmp(what, "close") == 0       ? close_all()
                                                   : obey_new(argv));
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc;) {
        i += (int)run_command(argv + i);
        require(i <= argc);
    }
    (void)close_all();
    for (size_t i = 0; i < MAX_INPUTS; i++)
        free(data[i]);
    return 0;
}
