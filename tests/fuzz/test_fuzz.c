// SPDX-License-Identifier: Apache-2.0
/*
 * Runs PyTorch programs with random changes, through import, cut, plan on disk
 * and one step: each is refused with a sentence, or runs. None crashes or hangs
 * (SIGPROF). After a crash the folder /tmp/pst-fuzz-* has the file.
 *
 *     PST_FUZZ=N       number of changed files
 *     PST_TEST_SEED=N  other changes
 *     test-fuzz FILE   runs these files, unchanged, instead
 */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/files/zip.h"
#include "stages/frontend/model.h"
#include "stages/run/exec.h"
#include "stages/tune/choose.h"
#include "tests/files/repack.h"
#include "tests/fuzz/mutate.h"
#include "tests/patience.h"
#include "tests/run/proof/proof.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WEIGHTS   "data/weights/model_weights_config.json"
#define MAX_BASES 128
#define MAX_BYTES ((size_t)64 << 20) /* larger arenas are not run */
#define SECONDS   20

struct base {
    char path[512], program[64]; /* program: name of the program's entry */
    json_t *json, *weights;
};

static struct base bases[MAX_BASES];
static unsigned n_bases;
static struct mutator chance = {.state = 20261121};
static char dir[] = "/tmp/pst-fuzz-XXXXXX";
static struct {
    unsigned tried, opened, cut, planned, ran;
} seen;

/* Reads a small entry as JSON; NULL if there is no such entry. */
static json_t *entry_json(struct pst_zip *zip, const char *name)
{
    struct pst_zip_entry *entry = pst_zip_find(zip, name);
    struct pst_diag diag;
    json_t *ret;
    char *data;

    if (entry == NULL ||
        pst_zip_read(zip, entry, 4 << 20, &data, &diag) != PST_OK)
        return NULL;
    ret = json_loadb(data, (size_t)entry->size, 0, NULL);
    pst_free(data);
    return ret;
}

static void add_base(const char *path)
{
    struct base *base = &bases[n_bases];
    struct pst_zip *zip;
    struct pst_diag diag;

    if (n_bases == MAX_BASES || pst_zip_open(path, &zip, &diag) != PST_OK)
        return;
    strcpy(base->program, "models/model.json");
    (void)snprintf(base->path, sizeof(base->path), "%s", path);
    base->json = entry_json(zip, base->program);
    base->weights = entry_json(zip, WEIGHTS);
    pst_zip_close(zip);
    if (base->json != NULL && base->weights != NULL) {
        n_bases++;
    } else {
        json_decref(base->json);
        json_decref(base->weights);
    }
}

static void add_folder(const char *path)
{
    struct dirent **names = NULL;
    int n;

    assert_non_null(path); /* `meson test` sets it */
    n = scandir(path, &names, NULL, alphasort);
    assert_true(n > 0);

    for (int i = 0; i < n; i++) {
        char full[512];
        const size_t length = strlen(names[i]->d_name);

        (void)snprintf(full, sizeof(full), "%s/%s", path, names[i]->d_name);
        if (length > 4 && strcmp(names[i]->d_name + length - 4, ".pt2") == 0)
            add_base(full);
        free(names[i]);
    }
    free(names);
}

/* Fills with small numbers of either sign, and indices that are often in range.
 */
static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct pst_plan *plan = ctx;
    const struct pst_meta *meta = &plan->inputs.at[input].meta;

    (void)step;
    (void)microbatch;
    (void)diag;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++) {
        const double x = (double)mutator_pick(&chance, 4000) / 1000;

        pst_store_f64(meta->dtype, dst, i,
                      pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT ? x - 2
                                                                    : x / 2);
    }
    return PST_OK;
}

/* Checks that a refusal gives one reason in one line, and is no internal error.
 */
static void check_refusal(enum pst_status status, const struct pst_diag *diag)
{
    const size_t length = strlen(diag->text);

    if (status == PST_ERR_INTERNAL || length < 10 ||
        strchr(diag->text, '\n') != NULL)
        fail_msg("%s: %s", pst_status_name(status), diag->text);
    if (getenv("PST_FUZZ_SHOW") != NULL)
        print_message("%s: %s\n", pst_status_name(status), diag->text);
}

static enum pst_status step(struct pst_plan *plan, struct pst_diag *diag)
{
    struct pst_exec_options options = {
        .schedule = "1f1b",
        .ranks = (unsigned)plan->stages.n,
        .microbatches = 2,
        .keep_outputs = true,
        .threads = 1,
        .seed = 3,
    };
    struct pst_memory memory[8];
    struct pst_step_result result;
    struct pst_transport *self;
    struct pst_engine *engine = NULL;
    enum pst_status status;
    char ranks[8];

    options.train = plan->loss >= 0;
    if (!options.train)
        options.schedule = "inference";
    status = pst_exec_plan(plan, &options, memory, diag);
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

static enum pst_status use_plan(struct pst_plan *plan, struct pst_diag *diag)
{
    struct pst_plan *again;
    enum pst_status status = pst_plan_save(plan, "plan", diag);

    if (status == PST_OK)
        status = pst_plan_load("plan", &again, diag);
    if (status != PST_OK)
        return status;
    status = step(again, diag);
    pst_plan_free(again);
    return status;
}

static void use_file(const char *path)
{
    struct pst_split_options options = {.policy = "flops",
                                        .stages = 1 + mutator_pick(&chance, 3)};
    struct pst_model *model;
    struct pst_plan *plan;
    struct pst_str text = {0};
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    test_limit_work(SECONDS);
    seen.tried++;
    status = pst_model_open(path, &model, &diag);
    if (status != PST_OK) {
        check_refusal(status, &diag);
        return;
    }
    seen.opened++;
    pst_graph_print(model->graph, &text);
    pst_str_fini(&text);
    status = pst_split(model, &options, &plan, &diag);
    /* The model may be too small for so many stages. */
    if (status != PST_OK && options.stages > 1) {
        options.stages = 1;
        status = pst_split(model, &options, &plan, &diag);
    }
    if (status == PST_OK) {
        seen.cut++;
        status = use_plan(plan, &diag);
        pst_plan_free(plan);
    }
    if (status != PST_OK)
        check_refusal(status, &diag);
    pst_model_close(model);
    test_limit_work(0);
}

static void try_one(void)
{
    const struct base *base = &bases[mutator_pick(&chance, n_bases)];
    const bool weights = mutator_pick(&chance, 8) == 0;
    json_t *json = json_deep_copy(weights ? base->weights : base->json);
    struct repack_edit edit = {weights ? WEIGHTS : base->program, NULL, NULL};
    char *text;

    for (unsigned i = 1 + mutator_pick(&chance, 6) / 4; i > 0; i--)
        mutate(&chance, json);
    text = json_dumps(json, 0);
    if (text != NULL) {
        edit.replace = text;
        repack(base->path, "x.pt2", NULL, 0, &edit, 1);
        use_file("x.pt2");
    }
    free(text);
    json_decref(json);
}

static void changed_programs_are_refused_or_run(void **state)
{
    const char *count = getenv("PST_FUZZ"), *seed = getenv("PST_TEST_SEED");
    const unsigned n = count ? (unsigned)strtoul(count, NULL, 10) : 500;

    (void)state;
    if (seed != NULL)
        chance.state += strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15u;
    add_folder(getenv("PST_GOLDEN"));
    add_folder(getenv("PST_SAMPLES"));
    assert_true(n_bases > 40);
    for (unsigned i = 0; i < n; i++)
        try_one();
    print_message("%u files: %u opened, %u cut, %u planned, %u ran\n",
                  seen.tried, seen.opened, seen.cut, seen.planned, seen.ran);
    assert_true(seen.opened > n / 20 && seen.ran > 0);
    for (unsigned i = 0; i < n_bases; i++) {
        json_decref(bases[i].json);
        json_decref(bases[i].weights);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_programs_are_refused_or_run),
    };
    char *files[64];
    int n = 0, ret;

    for (int i = 1; i < argc && n < 64; i++)
        files[n++] = realpath(argv[i], NULL);
    if (mkdtemp(dir) == NULL || chdir(dir) != 0)
        return 1;
    for (int i = 0; i < n; i++) {
        use_file(files[i]);
        free(files[i]);
    }
    ret = n > 0 ? 0 : cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
    if (ret == 0 && (chdir("/") != 0 || pst_remove_tree(dir, NULL) != PST_OK))
        ret = 1;
    return ret;
}
