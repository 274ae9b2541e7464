// SPDX-License-Identifier: Apache-2.0
/*
 * Sizes of structs: sizes TINY.pt2. Of a struct that is shorter than today's,
 * as an older header has it, the library reads and writes only that part. A
 * longer one is refused by name if the library would have to know the rest.
 */
#include "tests/lib/drive.h"

#include <stddef.h>

static struct penstock_error error = PENSTOCK_INIT(error);
static penstock_model *model;
static penstock_session *session;

/* Fills a struct with bytes that are no valid member, as if the memory after
 * an older struct were the program's own. */
#define older(object, first_new)                                               \
    do {                                                                       \
        memset(&(object), 0x5a, sizeof(object));                               \
        (object).size = offsetof(__typeof__(object), first_new);               \
    } while (0)
/* The bytes from that member on are as older() has left them. */
#define untouched(object, first_new)                                           \
    require(                                                                   \
        is_filled((const char *)&(object) +                                    \
                      offsetof(__typeof__(object), first_new),                 \
                  sizeof(object) - offsetof(__typeof__(object), first_new)) && \
        (object).size == offsetof(__typeof__(object), first_new))

static bool is_filled(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0x5a)
            return false;
    return n > 0;
}

static void models(const char *path)
{
    const struct penstock_option two[] = {{"stages", "2"}};
    struct penstock_open_config config;

    older(config, options);
    good(penstock_open(path, &config, &model, &error));
    penstock_close(model);
    older(config, message); /* not called: no crash */
    config.options = two;
    config.n_options = 1;
    good(penstock_open(path, &config, &model, &error));
}

static void sessions(void)
{
    const struct penstock_option two[] = {{"ranks", "2"}, {"threads", "1"}};
    struct penstock_session_config config;

    older(config, options);
    good(penstock_session_new(model, &config, &session, &error));
    penstock_session_free(session);
    older(config, mpi_comm);
    config.options = two;
    config.n_options = 2;
    good(penstock_session_new(model, &config, &session, &error));
}

static void results(void)
{
    const DLTensor *inputs[8];
    struct penstock_step step;
    struct held held[8];
    const size_t n = penstock_count(model, PENSTOCK_INPUT);

    require(n <= 8);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info whole = PENSTOCK_INIT(whole), info;

        older(info, shape);
        good(penstock_describe(model, PENSTOCK_INPUT, i, &info, &error));
        untouched(info, shape);
        older(info, batch_dim);
        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        untouched(info, batch_dim);
        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &whole,
                                       &error));
        require(strcmp(info.name, whole.name) == 0 && info.ndim == whole.ndim &&
                memcmp(info.shape, whole.shape,
                       (size_t)info.ndim * sizeof(info.shape[0])) == 0);
        held_init(&held[i], &whole);
        inputs[i] = &held[i].tensor;
    }
    older(step, loss);
    good(penstock_train_step(session, inputs, n, &step, &error));
    untouched(step, loss);
    require(step.step == 1);
    older(step, grad_norm);
    good(penstock_forward_backward(session, inputs, n, &step, &error));
    untouched(step, grad_norm);
    require(step.step == 1 && step.loss > 0 && step.loss < 1e6);
    older(step, applied);
    good(penstock_update(session, &step, &error));
    untouched(step, applied);
    require(step.step == 2 && step.lr > 0);
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

static void programs(void)
{
    static const char text[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"float32\"}}, \"args\": [\"a\"],"
        " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 2]}],"
        " \"returns\": [\"a\"]}";
    float array[3] = {1, 2, 3};
    int64_t three = 3;
    DLTensor a = {.data = array,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = &three};
    const struct penstock_operand operand = {"a", &a, NULL, 0};
    struct penstock_program_config config;
    struct penstock_call_info info;
    struct penstock_tensor result;
    penstock_program *program;

    older(config, options);
    good(penstock_program_open(text, strlen(text), &config, &program, &error));
    older(info, copied);
    good(penstock_call(program, &operand, 1, &info, &error));
    untouched(info, copied);
    require(info.results == 1 && array[2] == 6);
    older(result, operand);
    good(penstock_result(program, 0, &result, &error));
    untouched(result, operand);
    require(result.tensor.data == array && result.tensor.ndim == 1);
    penstock_program_close(program);
}

static void errors(void)
{
    struct penstock_error e;

    older(e, id);
    require(penstock_open(NULL, NULL, &model, &e) == PENSTOCK_ERR_USAGE);
    untouched(e, id);
    require(e.status == PENSTOCK_ERR_USAGE);
    older(e, remedy);
    require(penstock_open(NULL, NULL, &model, &e) == PENSTOCK_ERR_USAGE);
    untouched(e, remedy);
    require(strcmp(e.id, "library.argument") == 0 && e.text[0] != '\0');
}

/* Fails, and the sentence has that name. */
static void refused_by(int status, const char *name)
{
    require(status == PENSTOCK_ERR_USAGE &&
            strcmp(error.id, "library.argument") == 0 &&
            strstr(error.text, name) != NULL);
}

/* Structs of a later header: zeros after what is known are fine; results
 * leave what they do not know as it is. */
static void check_later_structs(const char *path)
{
    struct {
        struct penstock_open_config known;
        long more;
    } open = {.known = {.size = sizeof(open)}};
    struct {
        struct penstock_session_config known;
        long more;
    } of_session = {.known = {.size = sizeof(of_session)}};
    struct {
        struct penstock_program_config known;
        long more;
    } of_program = {.known = {.size = sizeof(of_program)}, .more = 1};
    struct {
        struct penstock_info known;
        long more;
    } info = {.known = {.size = sizeof(info)}, .more = 7};
    penstock_program *program;

    good(penstock_open(path, &open.known, &model, &error));
    good(penstock_describe(model, PENSTOCK_INPUT, 0, &info.known, &error));
    require(info.more == 7 && info.known.ndim > 0);
    good(penstock_session_new(model, &of_session.known, &session, &error));
    penstock_session_free(session);
    of_session.more = 1;
    refused_by(penstock_session_new(model, &of_session.known, &session, &error),
               "struct penstock_session_config");
    penstock_close(model);
    open.more = 1;
    refused_by(penstock_open(path, &open.known, &model, &error),
               "struct penstock_open_config");
    refused_by(
        penstock_program_open("{}", 2, &of_program.known, &program, &error),
        "struct penstock_program_config");
}

int main(int argc, char **argv)
{
    require(argc == 2);
    models(argv[1]);
    sessions();
    results();
    penstock_session_free(session);
    penstock_close(model);
    programs();
    errors();
    check_later_structs(argv[1]);
    return 0;
}
