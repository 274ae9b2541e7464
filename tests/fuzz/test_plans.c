// SPDX-License-Identifier: Apache-2.0
/*
 * Runs plans with random changes and a matching digest: a digest is no
 * signature, so each plan is refused with a sentence, or runs. None crashes,
 * hangs (SIGPROF) or accesses memory out of bounds (sanitizers). After a crash
 * the folder /tmp/pst-plans-* has the plan.
 *
 *     PST_FUZZ=N        number of changed plans
 *     PST_TEST_SEED=N   these changes again; the seed is printed
 *     test-fuzz-plans FOLDER...   runs these plans, unchanged, instead
 */
#include "tests/split/model.h"

#include "plan.pb-c.h"
#include "stages/base/fold/fold.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/frontend/model.h"
#include "stages/run/exec.h"
#include "stages/split/store/pack.h"
#include "stages/tune/choose.h"
#include "tests/files/repack.h"
#include "tests/fuzz/mutate.h"
#include "tests/patience.h"
#include "tests/run/proof/proof.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_BASES 16
#define MAX_BYTES ((size_t)64 << 20) /* larger arenas are not run */
#define SECONDS   30
#define SOME      300

typedef Penstock__Plan__Plan pb_plan;

/* A plan on disk, and the contents of its plan.pb. */
struct base {
    char dir[64];
    uint8_t *body;
    size_t size;
};

static struct base bases[MAX_BASES];
static unsigned n_bases;
static struct mutator chance;
static char dir[] = "/tmp/pst-plans-XXXXXX";
static struct {
    unsigned tried, loaded, planned, ran, unfolded;
} seen;

/* Strides, views across a cut, a parameter used by two stages, a buffer. */
static const char text[] =
    "graph next_id=1 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"w\" grad: f32[2, 3]\n"
    "  buffer %n \"n\" persistent: f32[2, 3]\n"
    "  const %c \"c\": f32[]\n"
#define NODE " # m.k zoo.py:3 F id=0\n"
    "  %a: f32[2, 3] = aten.mul.Tensor(%x, %w)" NODE
    "  %t: f32[3, 2]:(1, 3) view of %a + 0 = aten.t.default(%a)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %b: f32[2, 3] = aten.mul.Tensor(%a, %w)" NODE
    "  %d: f32[2, 3] = aten.add.Tensor(%b, %n)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %e: f32[3, 2] = aten.mul.Tensor(%t, %c)" NODE
    "  %f: f32[2, 3] = aten.add.Tensor(%a, %d)" NODE
    "  %loss: f32[] = aten.mse_loss.default(%f, %x)" NODE
#undef NODE
    "  output user %loss \"0\"\n"
    "  output user %e \"1\"\n"
    "  output user %x \"2\"\n"
    "  output user -7 \"3\"\n"
    "  output buffer %d -> %n \"\"\n"
    "}\n";

/* --- plans to begin with -------------------------------------------------- */

static void add_base(struct pst_plan *plan)
{
    struct base *base = &bases[n_bases];
    struct pst_diag diag;
    void *body;

    pst_diag_init(&diag);
    (void)snprintf(base->dir, sizeof(base->dir), "base-%u", n_bases);
    assert_ok(pst_plan_save(plan, base->dir, &diag), &diag);
    assert_ok(pst_plan_body(plan, &body, &base->size, &diag), &diag);
    base->body = body;
    n_bases++;
}

static void add_text(void)
{
    const struct pst_split_options options = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;

    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    add_base(plan);
    pst_plan_free(plan);
    model_fini(&model);
}

static void add_model(const char *name, unsigned stages)
{
    const struct pst_split_options options = {.policy = "flops",
                                              .stages = stages};
    struct pst_model *model;
    struct pst_plan *plan;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_ok(pst_model_open(golden(name), &model, &diag), &diag);
    if (pst_split(model, &options, &plan, &diag) == PST_OK) {
        add_base(plan);
        pst_plan_free(plan);
    }
    pst_model_close(model);
}

/* --- changes -------------------------------------------------------------- */

static int64_t strange_number(int64_t old)
{
    static const int64_t numbers[] = {
        0,         1,         2,         -1,        3,         7,
        64,        255,       4096,      65536,     INT32_MAX, UINT32_MAX,
        INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 40, 1LL << 46, 1LL << 61};

    switch (mutator_pick(&chance, 4)) {
    case 0:
        return (int64_t)((uint64_t)old + 1);
    case 1:
        return (int64_t)((uint64_t)old - 1);
    case 2:
        return (int64_t)((uint64_t)old * 2);
    default:
        return numbers[mutator_pick(&chance, PST_COUNT(numbers))];
    }
}

/* Replaces a number in the text of a graph, or a word by one of another line.
 */
static char *strange_text(const char *old)
{
    const size_t n = strlen(old);
    char *ret = malloc(n + 64);
    size_t at = n > 0 ? mutator_pick(&chance, (unsigned)n) : 0, end;

    assert_non_null(ret);
    while (at < n && (old[at] < '0' || old[at] > '9'))
        at++;
    for (end = at; end < n && old[end] >= '0' && old[end] <= '9';)
        end++;
    if (end == at || mutator_pick(&chance, 8) == 0) {
        memcpy(ret, old, n + 1);
        if (n > 1) { /* replaces a letter */
            at = mutator_pick(&chance, (unsigned)n);
            ret[at] = old[mutator_pick(&chance, (unsigned)n)];
        }
        return ret;
    }
    memcpy(ret, old, at);
    (void)sprintf(ret + at, "%lld%s",
                  (long long)strange_number(strtoll(old + at, NULL, 10)),
                  old + end);
    return ret;
}

static void change_scalar(ProtobufCType type, void *p)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
        *(int64_t *)p = strange_number(*(int64_t *)p);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)p = (double)strange_number((int64_t) * (float *)p);
        break;
    case PROTOBUF_C_TYPE_STRING: {
        char *old = *(char **)p, *fresh = strange_text(old);

        if (old != (char *)protobuf_c_empty_string)
            free(old);
        *(char **)p = fresh;
        break;
    }
    default: /* numbers of 32 bits, bool, enum */
        *(int32_t *)p = (int32_t)strange_number(*(int32_t *)p);
        break;
    }
}

static size_t item_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 8;
    default:
        return 4;
    }
}

static void change_message(ProtobufCMessage *message);

static void change_list(const ProtobufCFieldDescriptor *field, size_t *n,
                        unsigned char *items)
{
    const size_t size = item_size(field->type);
    const size_t i = mutator_pick(&chance, (unsigned)*n);
    const size_t k = mutator_pick(&chance, (unsigned)*n);
    unsigned char swap[8];

    switch (mutator_pick(&chance, 8)) {
    case 0: /* swaps two */
        memcpy(swap, items + i * size, size);
        memcpy(items + i * size, items + k * size, size);
        memcpy(items + k * size, swap, size);
        break;
    case 1: /* removes the last one */
        (*n)--;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            protobuf_c_message_free_unpacked(((ProtobufCMessage **)items)[*n],
                                             NULL);
        else if (field->type == PROTOBUF_C_TYPE_STRING)
            free(((char **)items)[*n]);
        break;
    default:
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            change_message(*(ProtobufCMessage **)(items + i * size));
        else
            change_scalar(field->type, items + i * size);
    }
}

static void change_message(ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *desc = message->descriptor;

    for (unsigned tries = 0; tries < 20; tries++) {
        const ProtobufCFieldDescriptor *field =
            &desc->fields[mutator_pick(&chance, desc->n_fields)];
        unsigned char *at = (unsigned char *)message + field->offset;

        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t *n =
                (size_t *)((unsigned char *)message + field->quantifier_offset);

            if (*n == 0)
                continue;
            change_list(field, n, *(unsigned char **)at);
            return;
        }
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(uint32_t *)((unsigned char *)message +
                          field->quantifier_offset) != field->id)
            continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (*(ProtobufCMessage **)at == NULL)
                continue;
            change_message(*(ProtobufCMessage **)at);
        } else {
            change_scalar(field->type, at);
        }
        return;
    }
}

/* --- one plan ------------------------------------------------------------- */

static void check_refusal(enum pst_status status, const struct pst_diag *diag)
{
    const size_t length = strlen(diag->text);

    if (status == PST_ERR_INTERNAL || length < 10 ||
        strchr(diag->text, '\n') != NULL)
        fail_msg("%s: %s", pst_status_name(status), diag->text);
    if (getenv("PST_FUZZ_SHOW") != NULL)
        print_message("%s: %s\n", pst_status_name(status), diag->text);
}

static void write_file(const struct base *base, Penstock__Plan__PlanFile *file,
                       const void *body, size_t size)
{
    char path[128], digest[33];
    uint8_t *data;

    pst_digest(body, size, digest);
    file->version = PST_PLAN_VERSION;
    file->digest = digest;
    data = malloc(penstock__plan__plan_file__get_packed_size(file) + 1);
    assert_non_null(data);
    size = penstock__plan__plan_file__pack(file, data);
    (void)snprintf(path, sizeof(path), "%s/%s", base->dir, PST_PLAN_FILE);
    spill(path, data, size);
    free(data);
}

static void write_plan(const struct base *base, uint8_t *body, size_t size)
{
    Penstock__Plan__PlanFile file = PENSTOCK__PLAN__PLAN_FILE__INIT;

    file.body.data = body;
    file.body.len = size;
    write_file(base, &file, body, size);
}

static uint32_t other_number(uint32_t number)
{
    switch (mutator_pick(&chance, 4)) {
    case 0:
        return number + 1;
    case 1:
        return number - 1;
    case 2:
        return mutator_pick(&chance, 64);
    default:
        return UINT32_MAX - mutator_pick(&chance, 2);
    }
}

static void change_folded(struct pst_folded *folded)
{
    struct pst_fold_run *run;

    if (folded->runs.n == 0 || mutator_pick(&chance, 3) == 0) {
        folded->lines
            .text[mutator_pick(&chance, (unsigned)folded->lines.len)] ^=
            (char)(1u << mutator_pick(&chance, 8));
        return;
    }
    run = &folded->runs.at[mutator_pick(&chance, (unsigned)folded->runs.n)];
    switch (mutator_pick(&chance, 4)) {
    case 0:
        run->line = other_number(run->line);
        break;
    case 1:
        run->period = other_number(run->period);
        break;
    case 2:
        run->count = other_number(run->count);
        break;
    default:
        if (run->n_deltas > 0)
            folded->deltas.at[run->first] =
                mutator_pick(&chance, 2) ? -1 : INT64_MAX;
        break;
    }
}

/* Writes the same plan folded, with changes to that form. The digest matches if
 * it can be unfolded. */
static void write_folded(const struct base *base, uint8_t *body, size_t size)
{
    Penstock__Plan__PlanFile file = PENSTOCK__PLAN__PLAN_FILE__INIT;
    struct pst_folded folded = {0};
    struct pst_str again = {0}, runs = {0};
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_fold(&penstock__plan__plan__descriptor, body, size, &folded,
                 &diag) == PST_OK) {
        change_folded(&folded);
        assert_ok(pst_fold_pack_runs(&folded, &runs, &diag), &diag);
        file.runs.data = (uint8_t *)runs.text;
        file.runs.len = runs.len;
        file.lines.data = (uint8_t *)folded.lines.text;
        file.lines.len = folded.lines.len;
        if (pst_unfold(&folded, &again, &diag) == PST_OK)
            seen.unfolded++;
        else
            check_refusal(PST_ERR_INPUT, &diag);
        write_file(base, &file, pst_str_text(&again), again.len);
    } else {
        write_plan(base, body, size);
    }
    pst_str_fini(&runs);
    pst_str_fini(&again);
    pst_folded_fini(&folded);
}

/* Fills with integers that are often in range as indices. */
static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_plan *plan = ctx;
    const struct pst_meta *meta = &plan->inputs.at[input].meta;

    (void)step;
    (void)microbatch;
    (void)diag;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++)
        pst_store_f64(meta->dtype, dst, i, (double)mutator_pick(&chance, 3));
    return PST_OK;
}

static enum pst_status step(struct pst_plan *plan, struct pst_diag *diag)
{
    struct pst_exec_options options = {
        .schedule = "1f1b",
        /* Any number of ranks: local copies, messages between ranks. */
        .ranks = 1 + mutator_pick(&chance, (unsigned)plan->stages.n),
        .microbatches = 2,
        .keep_outputs = true,
        .train = plan->loss >= 0,
        .threads = 1,
        .seed = 3,
    };
    struct pst_memory memory[8];
    struct pst_step_result result;
    struct pst_transport *self;
    struct pst_engine *engine = NULL;
    enum pst_status status = pst_exec_plan(plan, &options, memory, diag);
    char ranks[16];

    if (status != PST_OK)
        return status;
    seen.planned++;
    for (unsigned r = 0; r < options.ranks; r++)
        if (memory[r].arena > MAX_BYTES)
            return PST_OK;
    (void)snprintf(ranks, sizeof(ranks), "%u", options.ranks);
    assert_ok(pst_transport_self.open(ranks, &self, diag), diag);
    status = pst_engine_new(plan, self, &options, &engine, diag);
    if (status == PST_OK)
        assert_ok(prove_layouts(engine, diag), diag);
    if (status == PST_OK)
        status = pst_engine_step(engine, 0, fill, plan, 0, &result, diag);
    seen.ran += status == PST_OK;
    pst_engine_free(engine);
    pst_transport_self.close(self);
    return status;
}

static void use_plan(const char *where)
{
    struct pst_plan *plan;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    test_limit_work(SECONDS);
    seen.tried++;
    status = pst_plan_load(where, &plan, &diag);
    if (status == PST_OK) {
        seen.loaded++;
        if (plan->stages.n <= 8)
            status = step(plan, &diag);
        pst_plan_free(plan);
    }
    if (status != PST_OK)
        check_refusal(status, &diag);
    test_limit_work(0);
}

static void try_one(void)
{
    const struct base *base = &bases[mutator_pick(&chance, n_bases)];
    pb_plan *pb = penstock__plan__plan__unpack(NULL, base->size, base->body);
    uint8_t *body;
    size_t size;

    assert_non_null(pb);
    for (unsigned i = 1 + mutator_pick(&chance, 6) / 4; i > 0; i--)
        change_message(&pb->base);
    body = malloc(penstock__plan__plan__get_packed_size(pb) + 1);
    assert_non_null(body);
    size = penstock__plan__plan__pack(pb, body);
    /* A flipped bit may give a body that cannot be unpacked. */
    if (mutator_pick(&chance, 8) == 0 && size > 0)
        body[mutator_pick(&chance, (unsigned)size)] ^=
            (uint8_t)(1u << mutator_pick(&chance, 8));
    if (mutator_pick(&chance, 4) == 0)
        write_folded(base, body, size);
    else
        write_plan(base, body, size);
    free(body);
    penstock__plan__plan__free_unpacked(pb, NULL);
    use_plan(base->dir);
}

static void changed_plans_are_refused_or_run(void **state)
{
    const char *count = getenv("PST_FUZZ"), *seed = getenv("PST_TEST_SEED");
    const unsigned n = count ? (unsigned)strtoul(count, NULL, 10) : SOME;
    struct timespec now;
    unsigned long long s;

    (void)state;
    clock_gettime(CLOCK_REALTIME, &now);
    s = seed != NULL ? strtoull(seed, NULL, 10)
                     : (unsigned long long)now.tv_nsec / 1000 % 1000000;
    print_message("PST_TEST_SEED=%llu\n", s);
    chance.state = s * 0x9e3779b97f4a7c15u + 20261122;
    add_text();
    add_model("tiny.pt2", 2);
    add_model("mixed.pt2", 3);
    add_model("norm.pt2", 2);
    add_model("dynamic.pt2", 2);
    assert_true(n_bases > 2);
    for (unsigned i = 0; i < n_bases; i++) { /* the unchanged plans run */
        write_plan(&bases[i], bases[i].body, bases[i].size);
        use_plan(bases[i].dir);
    }
    assert_int_equal(seen.loaded, n_bases);
    assert_true(seen.ran > 2);
    for (unsigned i = 0; i < n; i++)
        try_one();
    print_message("%u plans: %u loaded, %u planned, %u ran\n", seen.tried,
                  seen.loaded, seen.planned, seen.ran);
    for (unsigned i = 0; i < n_bases; i++)
        pst_free(bases[i].body);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_plans_are_refused_or_run),
    };
    char *plans[64];
    int n = 0, ret;

    for (int i = 1; i < argc && n < 64; i++)
        plans[n++] = realpath(argv[i], NULL);
    if (mkdtemp(dir) == NULL || chdir(dir) != 0)
        return 1;
    for (int i = 0; i < n; i++) {
        use_plan(plans[i]);
        free(plans[i]);
    }
    ret = n > 0 ? 0 : cmocka_run_group_tests_name("plans", tests, NULL, NULL);
    if (ret == 0 && (chdir("/") != 0 || pst_remove_tree(dir, NULL) != PST_OK))
        ret = 1;
    return ret;
}
