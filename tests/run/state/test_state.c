// SPDX-License-Identifier: Apache-2.0
/* Tests checkpoints of engines, and dump files, on transport self. */
#include "tests/run/net.h"

#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"
#include "stages/optim/rows.h"

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

struct job {
    struct net net;
    struct net_data data;
    struct pst_transport *transport;
    struct pst_engine *engine;
    double losses[8]; /* losses of the steps */
};

/* Sets options that depend on the number of the update: the learning rate, its
 * decay and the first momentum. */
static void count_updates(struct pst_optim_options *optim)
{
    optim->warmup_steps = 3;
    optim->dampening = 0.5;
    optim->lr_decay = 0.5;
}

static void job_init_as(struct job *job, unsigned stages, unsigned ranks,
                        const char *optimizer, bool counts)
{
    struct pst_exec_options options = net_options("1f1b", ranks, 4, optimizer);
    struct pst_diag *diag = &job->net.diag;
    char text[16];

    if (counts)
        count_updates(&options.optim);
    net_init(&job->net, stages);
    job->data = net_data(&job->net);
    snprintf(text, sizeof(text), "%u", ranks);
    assert_ok(pst_transport_self.open(text, &job->transport, diag), diag);
    assert_ok(pst_engine_new(job->net.plan, job->transport, &options,
                             &job->engine, diag),
              diag);
}

static void job_init(struct job *job, unsigned stages, unsigned ranks,
                     const char *optimizer)
{
    job_init_as(job, stages, ranks, optimizer, false);
}

static void job_fini(struct job *job)
{
    pst_engine_free(job->engine);
    pst_transport_self.close(job->transport);
    net_fini(&job->net);
}

static void job_run(struct job *job, uint64_t from, uint64_t to)
{
    for (uint64_t s = from; s < to; s++) {
        struct pst_step_result result;

        assert_ok(pst_engine_step(job->engine, s, net_fill, &job->data, 0,
                                  &result, &job->net.diag),
                  &job->net.diag);
        job->losses[s] = result.loss;
    }
}

static struct pst_dump *job_dump(struct job *job)
{
    struct pst_dump *dump;

    assert_ok(pst_engine_dump_first(job->engine, &dump, &job->net.diag),
              &job->net.diag);
    assert_ok(pst_engine_dump_state(job->engine, dump, &job->net.diag),
              &job->net.diag);
    return dump;
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/pst-state-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Asserts that four steps give the same as two steps, a save, a load into a new
 * engine, and two more steps. */
static void resume(unsigned stages, unsigned ranks, const char *optimizer)
{
    struct job straight, first, second;
    struct pst_dump *want, *got;
    uint64_t step = 0;
    char dir[128];

    snprintf(dir, sizeof(dir), "%s/%u-%u-%s", folder, stages, ranks, optimizer);
    job_init(&straight, 3, 2, optimizer);
    job_run(&straight, 0, 4);
    job_init(&first, 3, 2, optimizer);
    job_run(&first, 0, 2);
    assert_ok(pst_engine_save(first.engine, dir, 2, 2, NULL, &first.net.diag),
              &first.net.diag);
    job_fini(&first);
    job_init(&second, stages, ranks, optimizer);
    assert_ok(net_load(second.engine, dir, &step, &second.net.diag),
              &second.net.diag);
    assert_int_equal(step, 2);
    job_run(&second, 2, 4);
    for (int s = 2; s < 4; s++)
        assert_true(straight.losses[s] == second.losses[s]);
    want = job_dump(&straight);
    got = job_dump(&second);
    assert_same_dump(want, got);
    pst_dump_free(want);
    pst_dump_free(got);
    job_fini(&second);
    job_fini(&straight);
}

static void resumes_with_any_cut(void **state)
{
    (void)state;
    resume(3, 2, "adamw");
    resume(1, 1, "adamw");
    resume(4, 4, "adamw");
    resume(2, 2, "sgd");
}

static void resumes_with_any_optimizer(void **state)
{
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        if (rows[i] != &pst_optim_adamw && rows[i] != &pst_optim_sgd)
            resume(2, 1, rows[i]->name);
}

/* Asserts that a skipped step does not count for the optimizer, not even after
 * a resume: a run without that step does the same. */
static void leave_out(const char *optimizer)
{
    struct job straight, first, second;
    struct pst_step_result result;
    struct pst_dump *want, *got;
    uint64_t step = 0;
    char dir[128];

    snprintf(dir, sizeof(dir), "%s/left-out-%s", folder, optimizer);
    job_init_as(&straight, 3, 2, optimizer, true);
    job_run(&straight, 1, 4);
    job_init_as(&first, 3, 2, optimizer, true);
    first.data.bad_step = 0;
    first.data.bad_microbatch = 1;
    first.data.x = (float)NAN;
    assert_int_equal(pst_engine_step(first.engine, 0, net_fill, &first.data, 0,
                                     &result, &first.net.diag),
                     PST_ERR_RANGE);
    job_run(&first, 1, 2);
    assert_ok(pst_engine_save(first.engine, dir, 2, 2, NULL, &first.net.diag),
              &first.net.diag);
    job_fini(&first);
    job_init_as(&second, 2, 2, optimizer, true);
    assert_ok(net_load(second.engine, dir, &step, &second.net.diag),
              &second.net.diag);
    assert_int_equal(step, 2);
    job_run(&second, 2, 4);
    want = job_dump(&straight);
    got = job_dump(&second);
    assert_same_dump(want, got);
    pst_dump_free(want);
    pst_dump_free(got);
    job_fini(&second);
    job_fini(&straight);
}

static void counts_updates_not_steps(void **state)
{
    (void)state;
    leave_out("adamw");
    leave_out("sgd");
    leave_out("adamax");
    leave_out("adagrad");
}

/* A checkpoint saved without an optimizer has no states to continue with. */
static void refuses_checkpoints_without_states(void **state)
{
    struct job job, other;
    uint64_t step;
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/stateless", folder);
    job_init(&job, 2, 2, "none");
    job_run(&job, 0, 1);
    assert_ok(pst_engine_save(job.engine, dir, 1, 2, NULL, &job.net.diag),
              &job.net.diag);
    job_init(&other, 2, 2, "sgd");
    assert_int_equal(net_load(other.engine, dir, &step, &other.net.diag),
                     PST_ERR_MISMATCH);
    assert_string_equal(other.net.diag.text,
                        "the checkpoint was written with optimizer none, this "
                        "run has sgd: give --optimizer none");
    job_fini(&other);
    job_init(&other, 2, 2, "none");
    assert_ok(net_load(other.engine, dir, &step, &other.net.diag),
              &other.net.diag);
    job_fini(&other);
    job_fini(&job);
}

static void refuses_foreign_checkpoints(void **state)
{
    struct job job, other;
    uint64_t step;
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/foreign", folder);
    job_init(&job, 2, 2, "sgd");
    assert_int_equal(net_load(job.engine, dir, &step, &job.net.diag),
                     PST_ERR_NOT_FOUND);
    job_run(&job, 0, 1);
    assert_ok(pst_engine_save(job.engine, dir, 1, 2, NULL, &job.net.diag),
              &job.net.diag);
    /* Another optimizer needs other states. */
    job_init(&other, 2, 2, "adamw");
    assert_int_equal(net_load(other.engine, dir, &step, &other.net.diag),
                     PST_ERR_MISMATCH);
    assert_non_null(strstr(other.net.diag.text, "sgd"));
    job_fini(&other);
    /* Another export of the same model is accepted, another model is not. */
    job_init(&other, 2, 2, "sgd");
    other.net.plan->model_digest[0] ^= 1;
    assert_ok(net_load(other.engine, dir, &step, &other.net.diag),
              &other.net.diag);
    other.net.plan->identity[0] ^= 1;
    assert_int_equal(net_load(other.engine, dir, &step, &other.net.diag),
                     PST_ERR_MISMATCH);
    job_fini(&other);
    job_fini(&job);
}

/* Continuing a run requires a checkpoint of that run; other commands accept any
 * checkpoint. */
static void refuses_another_run(void **state)
{
    static const struct {
        const char *optimizer;
        uint64_t seed;
        bool train;
        const char *want; /* text of the refusal; NULL: it is loaded */
    } cases[] = {
        {"adamw", 0, true,
         "the checkpoint was written with seed 5, this run has seed 0: give "
         "--seed 5"},
        {"sgd", 5, true,
         "the checkpoint was written with optimizer adamw, this run has sgd: "
         "give --optimizer adamw; to go on with new states add --group "
         "'*:optimizer=sgd'"},
        {"none", 5, true,
         "the checkpoint was written with optimizer adamw, this run has none: "
         "give --optimizer adamw"},
        {"adamw", 5, true, NULL},
        {"none", 0, false, NULL},
        {"sgd", 0, false, NULL},
        {"sgd", 0, false, NULL}, /* from another export of the model */
    };
    struct job job;
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/another", folder);
    job_init(&job, 2, 2, "adamw");
    job_run(&job, 0, 1);
    assert_ok(pst_engine_save(job.engine, dir, 1, 2, NULL, &job.net.diag),
              &job.net.diag);
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options =
            net_options("1f1b", 2, 4, cases[i].optimizer);
        struct pst_diag *diag = &job.net.diag;
        uint64_t step = 77;

        pst_engine_free(job.engine);
        job.net.plan->model_digest[0] ^= i == PST_COUNT(cases) - 1;
        options.optim.momentum = 0; /* sgd without a state */
        options.seed = cases[i].seed;
        options.train = cases[i].train;
        assert_ok(pst_engine_new(job.net.plan, job.transport, &options,
                                 &job.engine, diag),
                  diag);
        if (cases[i].want == NULL) {
            assert_ok(net_load(job.engine, dir, &step, diag), diag);
            assert_int_equal(step, 1);
            continue;
        }
        assert_int_equal(net_load(job.engine, dir, &step, diag),
                         PST_ERR_MISMATCH);
        assert_string_equal(diag->text, cases[i].want);
        assert_int_equal(step, 77);
    }
    job_fini(&job);
}

/* Returns the number of names in a folder, without . and .. ; -1: there is no
 * folder. */
static int count_files(const char *path)
{
    DIR *d = opendir(path);
    int n = -2;

    while (d != NULL && readdir(d) != NULL)
        n++;
    return d == NULL ? -1 : closedir(d) == 0 ? n : -2;
}

/* The second rank's shard exceeds the limit: nothing remains of the first
 * one's, and a checkpoint of the same step is unchanged. */
static void cleans_up_after_failed_saves(void **state)
{
    struct rlimit limit, small;
    struct stat first, second;
    char dir[64 + 16], path[192];
    struct job job;
    uint64_t step;

    (void)state;
    snprintf(dir, sizeof(dir), "%s/full", folder);
    job_init(&job, 2, 2, "adamw");
    assert_ok(pst_engine_save(job.engine, dir, 1, 0, NULL, &job.net.diag),
              &job.net.diag);
    snprintf(path, sizeof(path), "%s/step-00000001/rank-000.safetensors", dir);
    assert_int_equal(stat(path, &first), 0);
    snprintf(path, sizeof(path), "%s/step-00000001/rank-001.safetensors", dir);
    assert_int_equal(stat(path, &second), 0);
    assert_true(first.st_size != second.st_size);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    small = limit;
    for (unsigned k = 1; k <= 3; k++) {
        enum pst_status status;

        /* k = 2: one of the two shards may be written; k = 3: none. */
        small.rlim_cur =
            k == 3 ? 100 : (rlim_t)PST_MAX(first.st_size, second.st_size) - 1;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        status = pst_engine_save(job.engine, dir, k, 0, NULL, &job.net.diag);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(status, PST_ERR_IO);
        snprintf(path, sizeof(path), "%s/step-%08u", dir, k);
        assert_int_equal(count_files(path), k == 1 ? 3 : -1);
    }
    assert_ok(net_load(job.engine, dir, &step, &job.net.diag), &job.net.diag);
    assert_int_equal(step, 1);
    job_fini(&job);
}

/* Removes the newest checkpoint of the folder ctx, as a job with --keep 1 may,
 * after it was found and before it is loaded. */
static void remove_found(void *ctx, const char *dir, uint64_t step,
                         const char *text)
{
    struct pst_str path = {0};

    (void)dir;
    (void)step;
    (void)text;
    pst_str_addf(&path, "%s/step-00000002", (const char *)ctx);
    assert_int_equal(pst_remove_tree(pst_str_text(&path), NULL), PST_OK);
    pst_str_fini(&path);
}

/* A checkpoint that a job removes meanwhile is no error: the next one is
 * loaded. The second folder, which is read after the first one, has only a bad
 * checkpoint; when it is reported, that of the first folder is removed. */
static void loads_while_a_job_removes(void **state)
{
    char dir[256], second[256];
    struct pst_load_choice choice = {.dir = dir,
                                     .fallback = second,
                                     .step = PST_CHECKPOINT_LATEST,
                                     .skipped = remove_found,
                                     .ctx = dir};
    struct pst_checkpoint_info info;
    bool fallback = true;
    struct job job;

    (void)state;
    snprintf(dir, sizeof(dir), "%s/busy", folder);
    snprintf(second, sizeof(second), "%s/busy-second", folder);
    job_init(&job, 2, 2, "adamw");
    assert_ok(pst_engine_save(job.engine, second, 1, 0, NULL, &job.net.diag),
              &job.net.diag);
    assert_ok(
        pst_checkpoint_record_reason(second, 1, true, "nan", &job.net.diag),
        &job.net.diag);
    for (uint64_t step = 1; step <= 2; step++)
        assert_ok(
            pst_engine_save(job.engine, dir, step, 0, NULL, &job.net.diag),
            &job.net.diag);
    assert_ok(
        pst_engine_load(job.engine, &choice, &info, &fallback, &job.net.diag),
        &job.net.diag);
    assert_int_equal(info.step, 1);
    assert_false(fallback);
    /* A step that the caller has chosen is not replaced. */
    assert_ok(pst_engine_save(job.engine, dir, 2, 0, NULL, &job.net.diag),
              &job.net.diag);
    choice.step = 2;
    choice.fallback = NULL;
    remove_found(dir, dir, 2, "");
    assert_int_equal(
        pst_engine_load(job.engine, &choice, &info, NULL, &job.net.diag),
        PST_ERR_NOT_FOUND);
    job_fini(&job);
}

/* The file has the dump's tensors with their names. */
static void writes_dumps(void **state)
{
    struct pst_safetensors *file;
    struct pst_dump *dump, *again;
    struct job job;
    char path[128];
    size_t n;

    (void)state;
    snprintf(path, sizeof(path), "%s/dump.safetensors", folder);
    job_init(&job, 3, 2, "sgd");
    job_run(&job, 0, 1);
    again = job_dump(&job);
    assert_ok(pst_engine_dump_first(job.engine, &dump, &job.net.diag),
              &job.net.diag);
    assert_ok(pst_engine_dump_final(job.engine, dump, path, &job.net.diag),
              &job.net.diag);
    assert_ok(pst_safetensors_open(path, &file, &job.net.diag), &job.net.diag);
    assert_ok(pst_safetensors_load(file, &job.net.diag), &job.net.diag);
    (void)pst_dump_items(again, &n);
    assert_int_equal(pst_safetensors_count(file), n);
    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *item = &pst_dump_items(again, &n)[i];
        const struct pst_safetensors_entry *entry =
            pst_safetensors_find(file, item->name);

        if (entry == NULL)
            fail_msg("%s is not in the file", item->name);
        assert_true(pst_meta_same(&entry->meta, &item->meta));
        assert_memory_equal(entry->data, item->data, entry->bytes);
    }
    pst_safetensors_close(file);
    pst_dump_free(dump);
    pst_dump_free(again);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_with_any_cut),
        cmocka_unit_test(resumes_with_any_optimizer),
        cmocka_unit_test(counts_updates_not_steps),
        cmocka_unit_test(refuses_checkpoints_without_states),
        cmocka_unit_test(refuses_foreign_checkpoints),
        cmocka_unit_test(refuses_another_run),
        cmocka_unit_test(cleans_up_after_failed_saves),
        cmocka_unit_test(loads_while_a_job_removes),
        cmocka_unit_test(writes_dumps),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
