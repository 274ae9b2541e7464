// SPDX-License-Identifier: Apache-2.0
/* Tests plans on disk: intact ones, damaged ones, and those of other models. */
#include "tests/split/forge.h"
#include "tests/split/model.h"

#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODE " # m.k zoo.py:3 F id=0\n"

static const char text[] =
    "graph next_id=1 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"w\" grad: f32[2, 3]\n"
    "  buffer %n \"n\" persistent: f32[2, 3]\n"
    "  const %c \"c\": f32[]\n"
    "  %a: f32[2, 3] = aten.mul.Tensor(%x, %w)" NODE
    "  %t: f32[3, 2]:(1, 3) view of %a + 0 = aten.t.default(%a)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %b: f32[2, 3] = aten.mul.Tensor(%a, %w)" NODE
    "  %d: f32[2, 3] = aten.add.Tensor(%b, %n)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %e: f32[3, 2] = aten.mul.Tensor(%t, %c)" NODE
    "  %f: f32[2, 3] = aten.add.Tensor(%a, %d)" NODE
    "  %loss: f32[] = aten.mse_loss.default(%f, %x)" NODE
    "  output user %loss \"0\"\n"
    "  output user %e \"1\"\n"
    "  output user %x \"2\"\n"
    "  output user None \"3\"\n"
    "  output user -7 \"4\"\n"
    "  output user 0.5 \"5\"\n"
    "  output user True \"6\"\n"
    "  output user \"text\" \"7\"\n"
    "  output buffer %d -> %n \"\"\n"
    "}\n";

static struct pst_diag diag;

struct fixture {
    struct pst_model model;
    struct pst_plan *plan;
    char root[64], dir[80];
};

static int setup(void **state)
{
    static struct fixture f;
    const struct pst_split_options options = {0};

    pst_diag_init(&diag);
    strcpy(f.root, "/tmp/pst-plan-XXXXXX");
    if (mkdtemp(f.root) == NULL)
        return -1;
    snprintf(f.dir, sizeof(f.dir), "%s/plan", f.root);
    model_init(&f.model, text, NULL, 0);
    *state = &f;
    return pst_split(&f.model, &options, &f.plan, &diag) == PST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    pst_plan_free(f->plan);
    model_fini(&f->model);
    return pst_remove_tree(f->root, &diag) == PST_OK ? 0 : -1;
}

static void write_file(const struct fixture *f, const char *name,
                       const char *bytes)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(bytes, file);
    assert_int_equal(fclose(file), 0);
}

static void plans_read_back(void **state)
{
    struct fixture *f = *state;
    struct pst_plan *plan;
    float want[6], got[6];

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    /* Replaces the saved plan. */
    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_load(f->dir, &plan, &diag), &diag);
    assert_string_equal(plan->digest, f->plan->digest);
    assert_string_equal(plan->model_digest, f->model.digest);
    assert_int_equal(plan->stages.n, 3);
    for (unsigned i = 0; i < 3; i++) {
        struct pst_str a = {0}, b = {0};

        pst_plan_print_stage(f->plan, i, &a);
        pst_plan_print_stage(plan, i, &b);
        assert_string_equal(a.text, b.text);
        assert_true(plan->stages.at[i].flops == f->plan->stages.at[i].flops);
        pst_str_fini(&a);
        pst_str_fini(&b);
    }
    assert_int_equal(plan->edges.n, f->plan->edges.n);
    for (size_t i = 0; i < plan->params.n; i++)
        assert_memory_equal(plan->params.at[i].uses, f->plan->params.at[i].uses,
                            plan->params.at[i].n_stages * sizeof(unsigned));
    for (size_t i = 0; i < plan->edges.n; i++) {
        assert_int_equal(plan->edges.at[i].grad_parts,
                         f->plan->edges.at[i].grad_parts);
        assert_memory_equal(&plan->edges.at[i].meta, &f->plan->edges.at[i].meta,
                            sizeof(struct pst_meta));
    }
    assert_int_equal(plan->outputs.at[4].literal.i, -7);
    assert_true(plan->outputs.at[5].literal.f == 0.5);
    assert_true(plan->outputs.at[6].literal.b);
    assert_string_equal(plan->outputs.at[7].literal.s, "text");
    for (unsigned i = 0; i < 2; i++) {
        assert_ok(pst_plan_read_param(f->plan, i, want, &diag), &diag);
        assert_ok(pst_plan_read_param(plan, i, got, &diag), &diag);
        assert_memory_equal(want, got, sizeof(want));
    }
    assert_int_equal(pst_plan_find_param(plan, "n"), 1);
    assert_int_equal(pst_plan_find_param(plan, "none"), -1);
    pst_plan_free(plan);
}

static void expect_bad(const struct fixture *f, enum pst_status status,
                       const char *message)
{
    struct pst_plan *plan;

    assert_int_equal(pst_plan_load(f->dir, &plan, &diag), status);
    if (strstr(diag.text, message) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", message, diag.text);
}

static void refuses_other_folders(void **state)
{
    struct fixture *f = *state;

    expect_bad(f, PST_ERR_IO, f->dir);
    assert_ok(pst_mkdirs(f->dir, 0777, &diag), &diag);
    write_file(f, "thesis.tex", "precious");
    assert_int_equal(pst_plan_save(f->plan, f->dir, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "belong to no plan"));
    write_file(f, "plan.pb", "hello");
    expect_bad(f, PST_ERR_INPUT, "/plan: plan.pb: not a plan");
}

static void refuses_foreign_weights(void **state)
{
    struct fixture *f = *state;
    char a[128], b[128];

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    snprintf(a, sizeof(a), "%s/stage-000.safetensors", f->dir);
    snprintf(b, sizeof(b), "%s/stage-001.safetensors", f->dir);
    assert_int_equal(rename(b, a), 0); /* a file without w */
    expect_bad(f, PST_ERR_INPUT, "stage-000.safetensors is damaged: it is not");
    assert_int_equal(unlink(a), 0);
    expect_bad(f, PST_ERR_IO, "stage-000.safetensors: No such file");
}

/* Loads the plan and reads all parameters. */
static enum pst_status load_and_read(const struct fixture *f)
{
    struct pst_plan *plan = NULL;
    enum pst_status status = pst_plan_load(f->dir, &plan, &diag);
    float data[6];

    for (unsigned i = 0; status == PST_OK && i < plan->params.n; i++)
        status = pst_plan_read_param(plan, i, data, &diag);
    pst_plan_free(plan);
    return status;
}

/* Changes every byte of the weights, and tries every shorter length. */
static void damaged_weights_are_refused(void **state)
{
    struct fixture *f = *state;
    const char *where = "/plan/stage-000.safetensors is damaged: it has";
    size_t length;
    char *bytes;
    struct pst_plan *plan;
    float data[6];
    char path[128];
    FILE *file;

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(load_and_read(f), &diag);
    snprintf(path, sizeof(path), "%s/stage-000.safetensors", f->dir);
    file = fopen(path, "r+");
    assert_non_null(file);
    setbuf(file, NULL);
    assert_ok(pst_file_read(path, 65536, &bytes, &length, &diag), &diag);
    for (size_t i = 0; i < length; i++) {
        const int was = (unsigned char)bytes[i];

        assert_int_equal(fseek(file, (long)i, SEEK_SET), 0);
        assert_int_equal(fputc(was ^ 1 << i % 8, file), was ^ 1 << i % 8);
        assert_int_not_equal(load_and_read(f), PST_OK);
        assert_non_null(strstr(diag.text, "stage-000.safetensors"));
        assert_int_equal(fseek(file, (long)i, SEEK_SET), 0);
        assert_int_equal(fputc(was, file), was);
    }
    fclose(file);
    assert_ok(load_and_read(f), &diag);

    file = fopen(path, "r+"); /* the last byte of a number */
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc(bytes[length - 1] ^ 1, file);
    fclose(file);
    assert_ok(pst_plan_load(f->dir, &plan, &diag), &diag);
    assert_int_equal(plan->params.at[1].owner_stage, 1);
    assert_ok(pst_plan_read_param(plan, 1, data, &diag), &diag);
    assert_int_equal(plan->params.at[0].owner_stage, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pst_plan_read_param(plan, 0, data, &diag),
                         PST_ERR_INPUT);
    assert_non_null(
        strstr(diag.text, "/plan/stage-000.safetensors is damaged"));
    assert_non_null(strstr(diag.text, "stage 0"));
    pst_plan_free(plan);

    for (size_t size = length; size-- > 0;) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        expect_bad(f, PST_ERR_INPUT, where);
    }
    pst_free(bytes);
}

static enum pst_status save_limited(const struct fixture *f, const char *dir,
                                    rlim_t limit)
{
    struct rlimit was, now;
    enum pst_status status;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    now = was;
    now.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    status = pst_plan_save(f->plan, dir, &diag);
    setrlimit(RLIMIT_FSIZE, &was);
    return status;
}

/* The disk is full while the first weights, the last ones, or plan.pb are
 * written. */
static void failed_saves_leave_nothing(void **state)
{
    struct fixture *f = *state;
    rlim_t limit = 0;
    char deep[128];
    unsigned failed = 0;

    signal(SIGXFSZ, SIG_IGN); /* writes fail instead of a signal */
    snprintf(deep, sizeof(deep), "%s/new//newer/", f->dir);
    assert_ok(pst_mkdirs(f->dir, 0777, &diag), &diag);
    for (;; limit += 16) {
        if (save_limited(f, deep, limit) == PST_OK)
            break;
        assert_non_null(strstr(diag.text, "cannot write"));
        assert_int_equal(save_limited(f, f->dir, limit), PST_ERR_IO);
        /* The folder is still there, and empty. */
        assert_int_equal(rmdir(f->dir), 0);
        assert_ok(pst_mkdirs(f->dir, 0777, &diag), &diag);
        failed++;
    }
    assert_true(failed > 10);
    assert_ok(pst_remove_tree(f->dir, &diag), &diag);
    assert_int_equal(save_limited(f, deep, 1000), PST_ERR_IO);
    assert_int_equal(access(f->dir, F_OK), -1);
    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(load_and_read(f), &diag);
}

static unsigned count_entries(const char *dir)
{
    DIR *handle = opendir(dir);
    unsigned n = 0;

    assert_non_null(handle);
    while (readdir(handle) != NULL)
        n++;
    closedir(handle);
    return n - 2;
}

/* A split that fails over an old plan keeps that plan and leaves nothing beside
 * it; a successful one replaces it, through a link too. */
static void failed_saves_keep_the_old_plan(void **state)
{
    const struct pst_split_options one = {.policy = "flops", .stages = 1};
    struct fixture *f = *state;
    struct pst_plan *other, *loaded;
    char link[128], digest[33];

    signal(SIGXFSZ, SIG_IGN);
    assert_ok(pst_split(&f->model, &one, &other, &diag), &diag);
    assert_ok(pst_plan_save(other, f->dir, &diag), &diag);
    memcpy(digest, other->digest, sizeof(digest));
    for (rlim_t limit = 0; limit < 1200; limit += 400) {
        assert_int_equal(save_limited(f, f->dir, limit), PST_ERR_IO);
        assert_int_equal(count_entries(f->root), 1);
        assert_ok(load_and_read(f), &diag);
        assert_ok(pst_plan_load(f->dir, &loaded, &diag), &diag);
        assert_string_equal(loaded->digest, digest);
        pst_plan_free(loaded);
    }
    snprintf(link, sizeof(link), "%s/link", f->root);
    assert_int_equal(symlink(f->dir, link), 0);
    assert_ok(pst_plan_save(f->plan, link, &diag), &diag);
    assert_int_equal(count_entries(f->root), 2);
    assert_int_equal(count_entries(f->dir), 4); /* three stages and plan.pb */
    assert_ok(pst_plan_load(f->dir, &loaded, &diag), &diag);
    assert_string_equal(loaded->digest, f->plan->digest);
    assert_int_equal(unlink(link), 0);
    pst_plan_free(loaded);
    pst_plan_free(other);
}

/* A forged change, and the expected message. */
struct forgery {
    unsigned stage;
    const char *find, *replace; /* edit of the text of its graph */
    bool edge;                  /* also edits the edge that ends at this
                                 * stage */
    const char *said;
};

static char *substituted(const char *in, const char *find, const char *replace)
{
    const char *at = strstr(in, find);
    char *ret = malloc(strlen(in) + strlen(replace) + 1);

    assert_non_null(at);
    assert_non_null(ret);
    (void)sprintf(ret, "%.*s%s%s", (int)(at - in), in, replace,
                  at + strlen(find));
    return ret;
}

static void forge(const void *packed, size_t size, const struct forgery *x)
{
    Penstock__Plan__Plan *pb = penstock__plan__plan__unpack(NULL, size, packed);
    Penstock__Plan__Stage *stage = pb->stages[x->stage];
    char *graph = substituted(stage->graph, x->find, x->replace);
    uint8_t *body;

    free(stage->graph);
    stage->graph = graph;
    for (size_t i = 0; x->edge && i < pb->n_edges; i++) {
        Penstock__Plan__Meta *meta = pb->edges[i]->meta;

        if (pb->edges[i]->to_stage != x->stage || meta->stride[0] != 1)
            continue;
        meta->stride[0] = 2; /* was (1, 3) */
        meta->stride[1] = 1;
    }
    size = penstock__plan__plan__get_packed_size(pb);
    body = malloc(size);
    assert_non_null(body);
    penstock__plan__plan__pack(pb, body);
    assert_int_equal(forge_unpack(body, size, PST_PLAN_VERSION, &diag),
                     PST_ERR_INPUT);
    if (strstr(diag.text, x->said) == NULL)
        fail_msg("%s", diag.text);
    free(body);
    penstock__plan__plan__free_unpacked(pb, NULL);
}

/* An attacker can compute the digest of a plan. Without a check, strides that
 * differ where bytes are copied would write out of bounds. */
static void forged_strides_are_refused(void **state)
{
    static const struct forgery forgeries[] = {
        {2, "input %t: f32[3, 2]:(1, 3)", "input %t: f32[3, 2]", true,
         "other strides than its value"},
        {0, "input %x: f32[2, 3]", "input %x: f32[2, 3]:(0, 0)", false,
         "input 0 of stage 0 has no source"},
        {0, "grad: f32[2, 3]", "grad: f32[2, 3]:(1048576, 1)", false,
         "stage 0 reads \"w\" as another kind or with another layout than the "
         "plan says"},
    };
    struct fixture *f = *state;
    size_t size;
    void *data;

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_body(f->plan, &data, &size, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(forgeries); i++)
        forge(data, size, &forgeries[i]);
    pst_free(data);
}

/* Windows of parts are read from the value's bytes and must be inside of it. */
static void forged_windows_are_refused(void **state)
{
    static const struct {
        bool of_buffer, nameless;
        uint32_t dtype;
        int64_t size, stride, offset;
        const char *said;
    } forgeries[] = {
        {true, false, 7, 2, 1, 0, NULL},
        {true, false, 7, 2, 1, 1000000, "lies outside"},
        {true, false, 7, 2, 1, -1, "lies outside"},
        {true, false, 7, 2, 1, INT64_MAX, "lies outside"},
        {true, false, 7, 1000, 1, 0, "lies outside"},
        {true, false, 7, 2, 1000, 0, "lies outside"},
        {true, false, 8, 1, 1, 0, "lies outside"},
        {true, false, 7, -2, 1, 0, "window of parameter"},
        {true, false, 99, 2, 1, 0, "window of parameter"},
        {false, false, 7, 2, 1, 0, "has windows"},
        {true, true, 0, 0, 0, 0, "has no name"},
    };
    struct fixture *f = *state;
    Penstock__Plan__Plan *pb;
    size_t size, at[2] = {0, 0};
    void *data;

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_body(f->plan, &data, &size, &diag), &diag);
    pb = penstock__plan__plan__unpack(NULL, size, data);
    for (size_t i = 0; i < pb->n_params; i++)
        if (pb->params[i]->kind != PENSTOCK__PLAN__PARAM__KIND__CONST)
            at[pb->params[i]->kind == PENSTOCK__PLAN__PARAM__KIND__BUFFER] = i;
    assert_int_equal(pb->params[at[1]]->kind,
                     PENSTOCK__PLAN__PARAM__KIND__BUFFER);
    for (size_t i = 0; i < PST_COUNT(forgeries); i++) {
        Penstock__Plan__Param *param = pb->params[at[forgeries[i].of_buffer]];
        Penstock__Plan__Meta meta = PENSTOCK__PLAN__META__INIT;
        Penstock__Plan__Window window = PENSTOCK__PLAN__WINDOW__INIT;
        Penstock__Plan__Window *windows[] = {&window};
        uint8_t *body = malloc(size + 256);
        int64_t numbers[] = {forgeries[i].size, forgeries[i].stride};
        enum pst_status status;

        assert_non_null(body);
        meta.dtype = forgeries[i].dtype;
        meta.size = &numbers[0];
        meta.stride = &numbers[1];
        meta.n_size = meta.n_stride = 1;
        window.fqn = (char *)"part";
        window.meta = &meta;
        window.offset = forgeries[i].offset;
        param->windows = windows;
        param->n_windows = forgeries[i].nameless ? 0 : 1;
        param->nameless = forgeries[i].nameless;
        size = penstock__plan__plan__pack(pb, body);
        status = forge_unpack(body, size, PST_PLAN_VERSION, &diag);
        if (forgeries[i].said == NULL)
            assert_ok(status, &diag);
        else if (status != PST_ERR_INPUT ||
                 strstr(diag.text, forgeries[i].said) == NULL)
            fail_msg("case %zu: %s", i, diag.text);
        param->windows = NULL;
        param->n_windows = 0;
        param->nameless = false;
        free(body);
    }
    penstock__plan__plan__free_unpacked(pb, NULL);
    pst_free(data);
}

/* Counts of gradients determine the messages and the memory of accumulators. A
 * count that is too large for any plan is refused at once, other wrong counts
 * when the stage is made. */
static void forged_counts_are_refused(void **state)
{
    static const struct {
        uint32_t uses;
        size_t n;
        const char *said;
    } forgeries[] = {
        {1u << 20, 1, "cannot have 1048576 terms"},
        {3, 1, "gradients, the plan says 3"},
        {0, 1, "gradients, the plan says 0"},
        {1, 0, "parameter 0"},
    };
    struct fixture *f = *state;
    Penstock__Plan__Plan *pb;
    size_t size;
    void *data;

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_body(f->plan, &data, &size, &diag), &diag);
    pb = penstock__plan__plan__unpack(NULL, size, data);
    assert_true(pb->params[0]->requires_grad && pb->params[0]->n_uses > 0);
    for (size_t i = 0; i < PST_COUNT(forgeries); i++) {
        const size_t n = pb->params[0]->n_uses;
        uint8_t *body = malloc(size + 64);

        assert_non_null(body);
        pb->params[0]->uses[0] = forgeries[i].uses;
        pb->params[0]->n_uses = forgeries[i].n * n;
        size = penstock__plan__plan__pack(pb, body);
        assert_int_equal(forge_unpack(body, size, PST_PLAN_VERSION, &diag),
                         PST_ERR_INPUT);
        if (strstr(diag.text, forgeries[i].said) == NULL)
            fail_msg("%s", diag.text);
        pb->params[0]->n_uses = n;
        free(body);
    }
    penstock__plan__plan__free_unpacked(pb, NULL);
    pst_free(data);
}

/* A file whose bytes would expand to many more on the heap is refused. */
static void bombs_are_refused_unopened(void **state)
{
    static const struct {
        unsigned char pair[2]; /* repeated to fill the file */
        const char *said;
    } bombs[] = {
        {{4 << 3 | 2, 0}, "empty"},         /* edges */
        {{9 << 3 | 2, 0}, "memory"},        /* empty notes */
        {{15 << 3 | 2, 0}, "unknown"},      /* an unknown field */
        {{9 << 3 | 3, 9 << 3 | 4}, "kind"}, /* groups of protobuf */
    };
    const size_t size = (size_t)10 << 20;
    unsigned char *body = malloc(size);
    struct rusage before, after;

    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < PST_COUNT(bombs); i++) {
        const uint64_t calls = pst_alloc_calls();

        for (size_t k = 0; k < size; k += 2)
            memcpy(body + k, bombs[i].pair, 2);
        assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
        assert_int_equal(forge_unpack(body, size, PST_PLAN_VERSION, &diag),
                         PST_ERR_INPUT);
        assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
        if (strstr(diag.text, bombs[i].said) == NULL)
            fail_msg("%s", diag.text);
        assert_true(pst_alloc_calls() - calls < 100);
        /* Two copies of the file take 20 MiB. */
        assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10);
    }
    free(body);
}

/* Changes every byte of the file and, with a matching digest, of its content.
 */
static void damage_is_found_or_harmless(void **state)
{
    struct fixture *f = *state;
    unsigned harmless = 0;
    struct pst_plan *plan;
    uint8_t *data;
    size_t size;

    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_pack(f->plan, (void **)&data, &size, &diag), &diag);
    for (size_t i = 0; i < size; i++) {
        data[i] ^= (uint8_t)(1u << i % 8);
        assert_int_not_equal(pst_plan_unpack(data, size, &plan, &diag), PST_OK);
        data[i] ^= (uint8_t)(1u << i % 8);
        assert_int_not_equal(pst_plan_unpack(data, i, &plan, &diag), PST_OK);
    }
    pst_free(data);
    assert_ok(pst_plan_body(f->plan, (void **)&data, &size, &diag), &diag);
    assert_ok(forge_unpack(data, size, PST_PLAN_VERSION, &diag), &diag);
    assert_int_equal(forge_unpack(data, size, 1, &diag), PST_ERR_VERSION);
    assert_non_null(strstr(diag.text, "another version"));
    for (size_t i = 0; i < size; i++) {
        data[i] ^= (uint8_t)(1u << i % 8);
        harmless += forge_unpack(data, size, PST_PLAN_VERSION, &diag) == PST_OK;
        data[i] ^= (uint8_t)(1u << i % 8);
    }
    assert_true(harmless < size); /* changed letters of names are harmless */
    pst_free(data);
}

static void fail_allocations(const struct fixture *f,
                             const struct pst_split_options *options)
{
    const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
    const uint64_t graphs = pst_alloc_live(PST_TAG_GRAPH);
    enum pst_status status = PST_ERR_NOMEM;
    uint64_t n = 0;

    for (uint64_t step = 1; status != PST_OK; step += n / 100) {
        struct pst_plan *plan = NULL, *again = NULL;
        void *data = NULL;
        size_t size = 0;

        n += step;
        pst_alloc_fail_at(n);
        status =
            pst_split((struct pst_model *)&f->model, options, &plan, &diag);
        for (size_t i = 0; status == PST_OK && i < plan->stages.n; i++)
            memset(plan->stages.at[i].weights_digest, '0', 32);
        if (status == PST_OK)
            status = pst_plan_pack(plan, &data, &size, &diag);
        if (status == PST_OK)
            status = pst_plan_unpack(data, size, &again, &diag);
        pst_alloc_fail_at(0);
        pst_free(data);
        pst_plan_free(plan);
        pst_plan_free(again);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
        assert_int_equal(pst_alloc_live(PST_TAG_GRAPH), graphs);
    }
    assert_true(n > 100);
}

/* Every allocation fails once, for all ways to cut. */
static void survives_every_failed_allocation(void **state)
{
    static const char *const w = "w";
    static const struct pst_split_cost costs[] = {{"a", 1.0}, {"", 2.0}};
    static const struct pst_split_options ways[] = {
        {.transmit = &w, .n_transmit = 1},
        {.policy = "flops", .stages = 3, .costs = costs, .n_costs = 2},
        {.policy = "memory", .stages = 2},
    };

    for (size_t i = 0; i < PST_COUNT(ways); i++)
        fail_allocations(*state, &ways[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_other_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_foreign_weights, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damaged_weights_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_saves_leave_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_saves_keep_the_old_plan, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(forged_strides_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(forged_windows_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(forged_counts_are_refused, setup,
                                        teardown),
        cmocka_unit_test(bombs_are_refused_unopened),
        cmocka_unit_test_setup_teardown(damage_is_found_or_harmless, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(survives_every_failed_allocation, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
