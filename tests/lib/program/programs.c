// SPDX-License-Identifier: Apache-2.0
/*
 * Programs on operands that share memory: programs TIMES. Plans by way of
 * sharing, leaves whose content changes, bad texts and operands, each refused
 * by its name with nothing written; TIMES opens and closes.
 */
#include "tests/lib/drive.h"

#define N      16
#define PLANS  64
#define TENSOR "{\"dtype\": \"float32\"}"

static struct penstock_error error = PENSTOCK_INIT(error);
static const char product[] =
    "{\"tensors\": {\"a\": " TENSOR ", \"b\": " TENSOR "},"
    " \"args\": [\"a\", \"b\"],"
    " \"ops\": [{\"op\": \"aten.mul_.Scalar\", \"args\": [\"%a\", 10]},"
    "  {\"op\": \"aten.add.Tensor\", \"args\": [\"%a\", \"%b\"],"
    "   \"out\": [\"y\"]}],"
    " \"returns\": [\"y\"]}";
/* The loss is the sum of w * x; x is then written. */
static const char training[] =
    "{\"tensors\": {\"w\": {\"requires_grad\": true}, \"x\": {}},"
    " \"args\": [\"w\", \"x\"], \"backward\": true,"
    " \"ops\": [{\"op\": \"aten.mul.Tensor\", \"args\": [\"%w\", \"%x\"],"
    "   \"out\": [\"p\"]},"
    "  {\"op\": \"aten.sum\", \"args\": [\"%p\"], \"out\": [\"loss\"]}],"
    " \"returns\": [\"loss\"]}";

static _Alignas(8) float memory[2 * N];
static int64_t three = 3, one = 1;
static DLTensor a, b;
static struct penstock_operand operands[3];

#define refused(call, want_status, want_id, word)                              \
    do {                                                                       \
        error = (struct penstock_error)PENSTOCK_INIT(error);                   \
        if ((call) != (want_status) || error.status != (want_status) ||        \
            strcmp(error.id, want_id) != 0 || error.remedy[0] == '\0' ||       \
            strstr(error.text, word) == NULL) {                                \
            fprintf(stderr, "%s:%d: %s: %d, %s [%s]\n", __FILE__, __LINE__,    \
                    #call, error.status, error.text, error.id);                \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static penstock_program *open_text(const char *text)
{
    penstock_program *ret;

    good(penstock_program_open(text, strlen(text), NULL, &ret, &error));
    return ret;
}

/* Sets the operands: three floats each, at these elements of the memory. */
static void set_operands(int at_a, int at_b)
{
    const DLTensor t = {.device = {.device_type = kDLCPU},
                        .ndim = 1,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = &three,
                        .strides = &one};

    for (int i = 0; i < 2 * N; i++)
        memory[i] = (float)(i + 1);
    a = b = t;
    a.data = memory + at_a;
    b.data = memory + at_b;
    operands[0] = (struct penstock_operand){.name = "a", .tensor = &a};
    operands[1] = (struct penstock_operand){.name = "b", .tensor = &b};
    operands[2] = operands[0];
}

static void run(penstock_program *p, int at_a, int at_b, size_t bases,
                size_t plans)
{
    struct penstock_call_info info = PENSTOCK_INIT(info);
    struct penstock_tensor y = PENSTOCK_INIT(y);

    set_operands(at_a, at_b);
    good(penstock_call(p, operands, 2, &info, &error));
    require(info.bases == bases && info.plans == plans && info.results == 1);
    require(info.copied == 3 * sizeof(float));
    good(penstock_result(p, 0, &y, &error));
    require(y.operand == -1 && y.tensor.ndim == 1);
    for (int i = 0; i < 2 * N; i++)
        require(memory[i] ==
                (float)(i + 1) * (i >= at_a && i < at_a + 3 ? 10 : 1));
    for (int i = 0; i < 3; i++)
        require(((float *)y.tensor.data)[i] ==
                memory[at_a + i] + memory[at_b + i]);
}

/* A plan for each way of sharing; storages are derived from addresses. */
static void test_sharing(void)
{
    penstock_program *p = open_text(product);
    struct penstock_call_info info = PENSTOCK_INIT(info);

    run(p, 0, 1, 1, 1);
    run(p, 5, 6, 1, 1);
    run(p, 0, 3, 0, 2); /* beside each other */
    run(p, 9, 1, 0, 2);
    run(p, 1, 0, 1, 3);
    run(p, 4, 4, 1, 4); /* two tensors on the same bytes */
    set_operands(4, 4);
    operands[1].tensor = &a; /* one tensor with two names */
    good(penstock_call(p, operands, 2, &info, &error));
    require(info.bases == 0 && info.plans == 5 && info.is_new);
    run(p, 0, 1, 1, 5);
    run(p, 6, 8, 1, 6); /* one element in common */
    penstock_program_close(p);
}

/* More ways of sharing than plans are kept: each is right, also a second time,
 * when its plan was dropped. */
static void share_often(void)
{
    static int64_t sizes[PLANS + 6];
    penstock_program *p = open_text(product);
    struct penstock_call_info info = PENSTOCK_INIT(info);

    for (int k = 0; k < 2 * (PLANS + 6); k++) {
        int64_t *size = &sizes[k % (PLANS + 6)];
        int64_t stride[2] = {0, 1};
        float *big = calloc(PLANS + 8, sizeof(float));

        require(big != NULL);
        set_operands(0, 0);
        *size = k % (PLANS + 6) + 1;
        a.shape = b.shape = size;
        a.data = big;
        b.data = big + 1;
        big[1] = 2;
        b.strides = &stride[1];
        good(penstock_call(p, operands, 2, &info, &error));
        require(big[1] == (*size > 1 ? 20 : 2));
        free(big);
    }
    require(info.plans == 2 * (PLANS + 6));
    penstock_program_close(p);
}

/* Gradients follow the contents of a leaf and of its operand, with one plan. */
static void train(void)
{
    const struct penstock_option sgd[] = {{"optimizer", "sgd"}, {"lr", "0.5"}};
    struct penstock_program_config config = PENSTOCK_INIT(config);
    struct penstock_call_info info = PENSTOCK_INIT(info);
    struct penstock_tensor loss = PENSTOCK_INIT(loss), grad = loss;
    penstock_program *p;

    config.options = sgd;
    config.n_options = 2;
    good(
        penstock_program_open(training, strlen(training), &config, &p, &error));
    set_operands(0, 8);
    operands[0].name = "w";
    operands[1].name = "x";
    for (int k = 0; k < 3; k++) {
        float want = 0;

        for (int i = 0; i < 3; i++)
            want += memory[i] * memory[8 + i];
        good(penstock_call(p, operands, 2, &info, &error));
        good(penstock_result(p, 0, &loss, &error));
        good(penstock_result_gradient(p, "w", &grad, &error));
        require(*(float *)loss.tensor.data == want);
        for (int i = 0; i < 3; i++)
            require(((float *)grad.tensor.data)[i] == memory[8 + i] &&
                    memory[i] ==
                        (float)(i + 1) - 0.5f * (float)(k + 1) * memory[8 + i]);
        require(info.plans == 1);
    }
    refused(penstock_result_gradient(p, "x", &grad, &error),
            PENSTOCK_ERR_NOT_FOUND, "library.name", "requires no gradient");
    penstock_program_close(p);
}

/* --- bad input ------------------------------------------------------------ */

#define refused_text(text, word)                                               \
    refused(penstock_program_open(text, strlen(text), NULL, &p, &error),       \
            PENSTOCK_ERR_INPUT, "alias.text", word)
#define WITH(ops, returns)                                                     \
    "{\"tensors\": {\"a\": {}}, \"args\": [\"a\"], \"ops\": [" ops             \
    "], \"returns\": [" returns "]}"
#define OP(args)                                                               \
    "{\"op\": \"aten.neg\", \"args\": [" args "], \"out\": [\"y\"]}"

static void bad_texts(void)
{
    const struct penstock_option sgd = {"optimizer", "sgd"};
    const struct penstock_option group = {"group", "all:lr=1"};
    struct penstock_program_config config = PENSTOCK_INIT(config);
    static char deep[300], large[(16 << 20) + 2];
    penstock_program *p = NULL;

    memset(deep, '[', sizeof(deep) - 1);
    memset(large, ' ', sizeof(large) - 1);
    refused_text("", "not valid JSON");
    refused_text("[]", "is an object");
    refused_text("{}", "\"tensors\" is missing");
    refused_text(deep, "nested");
    refused_text(large, "larger than");
    refused_text(WITH("", "\"y\""), "no tensor is called \"y\"");
    refused_text(WITH("", "7"), "not a name");
    refused_text(WITH("7", ""), "not an object");
    refused_text(WITH(OP("\"%b\""), "\"y\""), "\"b\"");
    refused_text(WITH(OP("[1, \"x\"]"), "\"y\""), "list");
    refused_text(WITH(OP("{}"), "\"y\""), "object");
    refused_text(WITH(OP("99999999999999999999"), "\"y\""), "64 bits");
    refused_text(WITH("{\"op\": \"aten.neg\", \"arg\": []}", ""), "\"arg\"");
    refused_text(WITH("{\"op\": \"aten.neg\", \"stage\": 1000}", ""), "stage");
    refused_text(WITH("{\"op\": \"aten.neg\", \"out\": [\"1\"]}", ""),
                 "number");
    refused_text("{\"tensors\": {\"a\": {\"dtype\": \"float31\"}},"
                 " \"args\": [\"a\"], \"ops\": [], \"returns\": []}",
                 "float31");
    refused_text("{\"tensors\": {}, \"args\": [\"a\"], \"ops\": [],"
                 " \"returns\": []}",
                 "neither");
    refused_text("{\"tensors\": {}, \"args\": [], \"ops\": [],"
                 " \"returns\": [], \"backward\": true}",
                 "loss");
    refused(penstock_program_open("{}\0", 3, NULL, &p, &error),
            PENSTOCK_ERR_INPUT, "alias.text", "NUL");
    refused(penstock_program_open(NULL, 0, NULL, &p, &error),
            PENSTOCK_ERR_USAGE, "library.argument", "text");
    config.options = &sgd;
    config.n_options = 1;
    refused(
        penstock_program_open(product, strlen(product), &config, &p, &error),
        PENSTOCK_ERR_USAGE, "library.option", "backward");
    config.options = &group;
    refused(
        penstock_program_open(training, strlen(training), &config, &p, &error),
        PENSTOCK_ERR_USAGE, "library.option", "program_open");
    require(p == NULL);
    penstock_program_close(NULL);
}

/* The call is refused and has written nothing; then the same program runs. */
#define refused_call(status, id, word)                                         \
    do {                                                                       \
        float copy[2 * N];                                                     \
                                                                               \
        memcpy(copy, memory, sizeof(copy));                                    \
        refused(penstock_call(p, operands, n, NULL, &error), status, id,       \
                word);                                                         \
        require(memcmp(copy, memory, sizeof(copy)) == 0);                      \
        refused(penstock_result(p, 0, &y, &error), PENSTOCK_ERR_USAGE,         \
                "library.order", "not called");                                \
        set_operands(0, 1);                                                    \
        n = 2;                                                                 \
    } while (0)
#define refused_tensor(word)                                                   \
    refused_call(PENSTOCK_ERR_SHAPE, "library.tensor", word)
#define unaligned(word)                                                        \
    refused_call(PENSTOCK_ERR_UNSUPPORTED, "alias.unaligned", word)

static void bad_names(penstock_program *p)
{
    struct penstock_tensor y = PENSTOCK_INIT(y);
    size_t n = 1;

    set_operands(0, 1);
    refused_call(PENSTOCK_ERR_INPUT, "alias.call", "\"b\" is missing");
    operands[1].name = "c";
    refused_call(PENSTOCK_ERR_NOT_FOUND, "library.name", "'c'");
    operands[1].name = "a";
    refused_call(PENSTOCK_ERR_USAGE, "library.argument", "twice");
    n = 3;
    refused_call(PENSTOCK_ERR_USAGE, "library.argument", "twice");
    operands[1].name = NULL;
    refused_call(PENSTOCK_ERR_USAGE, "library.argument", "NULL");
    refused(penstock_call(p, NULL, 2, NULL, &error), PENSTOCK_ERR_USAGE,
            "library.argument", "operands");
    refused(penstock_call(NULL, operands, 2, NULL, &error), PENSTOCK_ERR_USAGE,
            "library.argument", "program");
}

static void bad_tensors(penstock_program *p)
{
    struct penstock_tensor y = PENSTOCK_INIT(y);
    int64_t zero = 0, back = -1, minus = -3;
    size_t n = 2;

    set_operands(0, 1);
    operands[1].tensor = NULL;
    refused_tensor("missing");
    a.device.device_type = kDLCUDA;
    refused_call(PENSTOCK_ERR_SHAPE, "library.device",
                 "in the memory of GPU 0");
    a.dtype.code = kDLInt;
    refused_tensor("int32[3], and the program has f32");
    a.dtype.code = kDLComplex;
    refused_tensor("complex");
    a.ndim = 9;
    refused_tensor("8 dimensions");
    a.shape = NULL;
    refused_tensor("shape");
    a.shape = &minus;
    refused_tensor("negative");
    b.strides = &back;
    refused_tensor("negative");
    a.data = NULL;
    refused_tensor("data is NULL");
    a.byte_offset = UINT64_MAX - 8;
    refused_tensor("offset");
    a.strides = &zero; /* written */
    refused_call(PENSTOCK_ERR_UNSUPPORTED, "model.shared-memory",
                 "E_SELF_OVERLAP");
    a.byte_offset = 2;
    unaligned("E_UNALIGNED");
    a.byte_offset = 32;
    b.byte_offset = 31;
    unaligned("E_UNALIGNED: 'b' begins at byte 3");
    operands[0].storage = memory;
    operands[0].storage_bytes = 2 * sizeof(float);
    refused_tensor("beyond the storage");
    operands[0].storage = memory;
    operands[0].storage_bytes = 3 * sizeof(float);
    refused_tensor("give both the same storage");
    operands[0].storage = operands[1].storage = memory;
    operands[0].storage_bytes = 8 * sizeof(float);
    operands[1].storage_bytes = 9 * sizeof(float);
    refused_tensor("give both the same storage");
    operands[0].storage = memory;
    operands[0].storage_bytes = SIZE_MAX;
    refused_tensor("beyond the storage");
    require(n == 2);
}

/* Elements of two sizes on one storage: offsets that are odd for the larger
 * ones need the storage; views of another dtype must be aligned, too. */
static void test_element_sizes(void)
{
    static const char bytes[] =
        "{\"tensors\": {\"a\": {\"dtype\": \"int16\"}, \"b\": " TENSOR "},"
        " \"args\": [\"a\", \"b\"],"
        " \"ops\": [{\"op\": \"aten.zero_\", \"args\": [\"%a\"]}],"
        " \"returns\": [\"b\"]}";
    static const char wide[] =
        "{\"tensors\": {\"a\": " TENSOR "}, \"args\": [\"a\"],"
        " \"ops\": [{\"op\": \"aten.view.dtype\", \"args\": [\"%a\","
        "   \"float64\"], \"out\": [\"v\"]},"
        "  {\"op\": \"aten.zero_\", \"args\": [\"%v\"]}],"
        " \"returns\": []}";
    struct penstock_call_info info = PENSTOCK_INIT(info);
    struct penstock_tensor y = PENSTOCK_INIT(y);
    penstock_program *p = open_text(bytes);
    int64_t two = 2;
    size_t n = 2;

    set_operands(0, 1);
    a.dtype = (DLDataType){kDLInt, 16, 1};
    a.byte_offset = 2; /* bytes 2 to 8; b has 4 to 16 */
    unaligned("E_UNALIGNED: 'b' begins at byte 2");
    a.dtype = (DLDataType){kDLInt, 16, 1};
    a.byte_offset = 2;
    for (int i = 0; i < 2; i++) {
        operands[i].storage = memory;
        operands[i].storage_bytes = sizeof(memory);
    }
    good(penstock_call(p, operands, 2, &info, &error));
    good(penstock_result(p, 0, &y, &error));
    require(y.operand == 0 || y.operand == 1);
    require((char *)y.tensor.data + y.tensor.byte_offset ==
            (char *)(memory + 1));
    require(memory[1] == 0 && memory[2] == 3 && info.bases == 1);
    penstock_program_close(p);
    p = open_text(wide);
    set_operands(0, 0);
    a.shape = &two;
    good(penstock_call(p, operands, 1, NULL, &error));
    require(memory[0] == 0 && memory[1] == 0 && memory[2] == 3);
    set_operands(1, 0);
    a.shape = &two;
    n = 1;
    unaligned("E_UNALIGNED: a view of \"a\"");
    require(n == 2);
    penstock_program_close(p);
}

/* --- operands that are read-only ------------------------------------------ */

/* The call with these flags is refused and has written nothing. */
static void read_only(penstock_program *p, size_t n, const uint64_t *flags,
                      const char *word)
{
    float copy[2 * N];

    memcpy(copy, memory, sizeof(copy));
    refused(penstock_call_flags(p, operands, flags, n, NULL, &error),
            PENSTOCK_ERR_UNSUPPORTED, "alias.read-only", word);
    require(memcmp(copy, memory, sizeof(copy)) == 0);
}

static void test_read_only(void)
{
    static const char view[] =
        "{\"tensors\": {\"a\": {}}, \"args\": [\"a\"],"
        " \"ops\": [{\"op\": \"aten.slice.Tensor\","
        "   \"args\": [\"%a\", 0, 1, 3], \"out\": [\"v\"]},"
        "  {\"op\": \"aten.zero_\", \"args\": [\"%v\"]}],"
        " \"returns\": [\"v\"]}";
    const uint64_t first[] = {PENSTOCK_READ_ONLY, 0}, second[] = {0, 1},
                   others[] = {~(uint64_t)1, 6};
    struct penstock_call_info info = PENSTOCK_INIT(info);
    struct penstock_tensor y = PENSTOCK_INIT(y);
    penstock_program *p = open_text(product);

    set_operands(0, 1);
    read_only(p, 2, first, "E_READ_ONLY: the program writes \"a\"");
    refused(penstock_result(p, 0, &y, &error), PENSTOCK_ERR_USAGE,
            "library.order", "not called");
    /* b's memory is written, but not through b */
    good(penstock_call_flags(p, operands, second, 2, &info, &error));
    require(info.plans == 1 && memory[0] == 10 && memory[2] == 30);
    read_only(p, 2, first, "E_READ_ONLY"); /* by the plan of a good call */
    good(penstock_call_flags(p, operands, others, 2, NULL, &error));
    good(penstock_call_flags(p, operands, NULL, 2, NULL, &error));
    set_operands(0, 1);
    operands[1].tensor = operands[0].tensor; /* one tensor with two names */
    read_only(p, 2, second, "E_READ_ONLY: the program writes");
    good(penstock_call(p, operands, 2, NULL, &error));
    penstock_program_close(p);
    p = open_text(view);
    set_operands(0, 1);
    read_only(p, 1, first, "E_READ_ONLY: the program writes \"a\"");
    good(penstock_call_flags(p, operands, second, 1, NULL, &error));
    require(memory[0] == 1 && memory[1] == 0 && memory[2] == 0);
    penstock_program_close(p);
}

/* A leaf is written by an optimizer, and under no_grad by way of a view that
 * was made before the call. */
static void test_read_only_leaves(void)
{
    static const char before[] =
        "{\"tensors\": {\"w\": {\"requires_grad\": true}},"
        " \"before\": [{\"op\": \"aten.slice.Tensor\","
        "   \"args\": [\"%w\", 0, 1, 3], \"out\": [\"v\"]}],"
        " \"args\": [\"w\", \"v\"], \"ops\": [{\"op\": \"aten.zero_\","
        "   \"args\": [\"%v\"], \"no_grad\": true}], \"returns\": []}";
    const struct penstock_option sgd[] = {{"optimizer", "sgd"}, {"lr", "0.5"}};
    const uint64_t first[] = {PENSTOCK_READ_ONLY, 0}, second[] = {0, 1};
    struct penstock_program_config config = PENSTOCK_INIT(config);
    penstock_program *p = open_text(training);

    set_operands(0, 8);
    operands[0].name = "w";
    operands[1].name = "x";
    good(penstock_call_flags(p, operands, first, 2, NULL, &error));
    require(memory[0] == 1);
    penstock_program_close(p);
    config.options = sgd;
    config.n_options = 2;
    good(
        penstock_program_open(training, strlen(training), &config, &p, &error));
    read_only(p, 2, first, "E_READ_ONLY: the optimizer writes leaf \"w\"");
    good(penstock_call_flags(p, operands, second, 2, NULL, &error));
    require(memory[0] == 1 - 0.5F * memory[8]);
    penstock_program_close(p);
    p = open_text(before);
    read_only(p, 1, first, "E_READ_ONLY: the program writes \"w\"");
    good(penstock_call_flags(p, operands, second, 1, NULL, &error));
    require(memory[1] == 0 && memory[2] == 0);
    penstock_program_close(p);
}

static void open_and_close(unsigned turn)
{
    penstock_program *p = open_text(turn % 2 == 0 ? product : training);
    struct penstock_tensor y = PENSTOCK_INIT(y);

    set_operands((int)(turn % 5), 3);
    if (turn % 2 != 0) {
        operands[0].name = "w";
        operands[1].name = "x";
    }
    if (turn % 3 != 0)
        good(penstock_call(p, operands, 2, NULL, &error));
    if (turn % 3 == 2)
        good(penstock_result(p, 0, &y, &error));
    penstock_program_close(p);
}

int main(int argc, char **argv)
{
    penstock_program *p = open_text(product);

    require(argc == 2);
    bad_texts();
    bad_names(p);
    bad_tensors(p);
    run(p, 0, 1, 1, 1); /* refused calls have made no plan */
    penstock_program_close(p);
    test_sharing();
    share_often();
    train();
    test_element_sizes();
    test_read_only();
    test_read_only_leaves();
    for (unsigned i = 0; i < (unsigned)atoi(argv[1]); i++)
        open_and_close(i);
    puts("ok");
    return 0;
}
