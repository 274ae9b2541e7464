// SPDX-License-Identifier: Apache-2.0
/* Tests the programs as users run them; with the argument "mpi", by mpirun. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "tests/daemon/unit/drive.h"
#include "tests/test.h"

static const char *transport = "self";

/* Returns the command of `penstock run` with the usual options and `options`.
 */
static const char *run(const char *options)
{
    static char command[1024];

    (void)snprintf(command, sizeof(command),
                   "penstock run tiny.plan -n 2 -m 2 --transport %s --data "
                   "data.safetensors --lr 0.01 %s",
                   transport, options);
    return command;
}

/* Copies the value of "key" from the output of the newest program. */
static void json_value(const char *key, char ret[64])
{
    char quoted[64];
    const char *at;

    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(drive.text, quoted);
    if (at == NULL)
        fail_msg("no %s in %s", key, drive.text);
    (void)snprintf(ret, 64, "%.63s", at + strlen(quoted));
    ret[strcspn(ret, ",}]")] = '\0';
}

static void trains_and_resumes_bit_for_bit(void **state)
{
    char straight[64], resumed[64], text[64];

    (void)state;
    drive_expect(run("--steps 6 --json --log-dir log"), 0);
    json_value("loss", straight);
    json_value("steps", text);
    assert_string_equal(text, "6");
    drive_await("log/rank-0.log", "event=train_end", NULL);
    drive_expect(run("--steps 6 --json --reference -n 1"), 0);
    json_value("loss", resumed);
    assert_string_equal(straight, resumed);
    drive_expect(run("--steps 3 --checkpoint ck --quiet"), 0);
    assert_true(drive_exists("ck/step-00000003/manifest.json"));
    drive_expect(run("--steps 6 --checkpoint ck --resume --json"), 0);
    json_value("loss", resumed);
    assert_string_equal(straight, resumed);
    json_value("first_step", text);
    assert_string_equal(text, "3");
}

/* Makes saving step 3 fail, by a file where the folder of the step should be
 * (blocked), or removes the file. */
static void block_step(const char *dir, bool blocked)
{
    char path[256];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", drive.dir, dir);
    assert_int_equal(pst_mkdirs(path, 0777, NULL), PST_OK);
    (void)snprintf(path, sizeof(path), "%s/%s/step-00000003", drive.dir, dir);
    if (!blocked) {
        (void)unlink(path);
        return;
    }
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static void rename_in_folder(const char *from, const char *to)
{
    char old[256], new[256];

    (void)snprintf(old, sizeof(old), "%s/%s", drive.dir, from);
    (void)snprintf(new, sizeof(new), "%s/%s", drive.dir, to);
    assert_int_equal(rename(old, new), 0);
}

/* --resume=auto, which a service gives at each start, also works at the first
 * start, when there is no checkpoint. */
static void resumes_if_there_is_one(void **state)
{
    (void)state;
    drive_expect(run("--steps 2 --checkpoint any --resume=auto --json"), 0);
    drive_expect_output("\"first_step\":0");
    drive_expect(run("--steps 4 --checkpoint any --resume=auto --json"), 0);
    drive_expect_output("\"first_step\":2");
    rename_in_folder("any/step-00000004/manifest.json", "any/m4");
    rename_in_folder("any/step-00000002/manifest.json", "any/m2");
    drive_expect(run("--steps 5 --checkpoint any --resume=auto --json"), 65);

    /* The first folder fails, so the second one gets the checkpoint. */
    block_step("fd", true);
    drive_expect(run("--steps 3 --checkpoint fd --checkpoint-fallback vf "
                     "--resume=auto --quiet"),
                 0);
    drive_expect(run("--steps 4 --checkpoint fd --resume=auto --json"), 0);
    drive_expect_output("\"first_step\":3");
    rename_in_folder("vf", "wf");
    drive_expect(run("--steps 5 --checkpoint fd --resume=auto"), 78);
    drive_expect_output("vf, which is not there");
    drive_expect(run("--steps 5 --resume=auto"), 64);
    drive_expect_output("--resume needs --checkpoint");
}

/* --resume=auto does not begin anew if the run has saved checkpoints, and the
 * folder that may have them is missing. */
static void misses_a_folder(void **state)
{
    (void)state;
    drive_expect(run("--steps 2 --checkpoint go --checkpoint-fallback ne "
                     "--resume=auto --quiet"),
                 0);
    rename_in_folder("go", "gone");
    drive_expect(run("--steps 4 --checkpoint go --checkpoint-fallback ne "
                     "--resume=auto --max-restarts 2"),
                 78);
    drive_expect_output("go is not there");
    assert_false(drive_exists("go/owner.json"));
    drive_expect(run("--steps 3 --checkpoint go --checkpoint-fallback ne "
                     "--json"),
                 0);
    drive_expect_output("\"first_step\":0");
    drive_expect(run("--steps 4 --checkpoint go --checkpoint-fallback ne "
                     "--resume=auto --json"),
                 0);
    drive_expect_output("\"first_step\":3");

    /* The checkpoint is in the second folder. */
    block_step("og", true);
    drive_expect(run("--steps 3 --checkpoint og --checkpoint-fallback en "
                     "--resume=auto --quiet"),
                 0);
    rename_in_folder("en", "ne/en");
    drive_expect(run("--steps 4 --checkpoint og --checkpoint-fallback en "
                     "--resume=auto"),
                 78);
    drive_expect_output("en is not there");
}

/* A checkpoint folder belongs to one run. Another run is refused, even with the
 * same model. --adopt takes the folder over and removes nothing. */
static void keeps_runs_apart(void **state)
{
    (void)state;
    drive_expect(run("--steps 2 --checkpoint own --quiet"), 0);
    drive_expect(run("--steps 1 --checkpoint own --quiet"), 78);
    drive_expect_output("belongs to another run (newest: step 2)");
    drive_expect(run("--steps 1 --checkpoint own --quiet --adopt --log-dir "
                     "logown"),
                 0);
    drive_expect_output("own/former-1 now");
    drive_await("logown/rank-0.log", "event=checkpoint_found", NULL);
    assert_true(drive_exists("own/former-1/step-00000002/manifest.json"));
    assert_true(drive_exists("own/step-00000001/manifest.json"));
    drive_expect(run("--steps 3 --checkpoint own/former-1 --resume --quiet"),
                 0);
}

/* The second folder belongs to the same run, and the first one records its
 * path. */
static void keeps_fallbacks_apart(void **state)
{
    (void)state;
    block_step("fa", true);
    block_step("fb", false);
    drive_expect(run("--steps 3 --checkpoint fa --checkpoint-fallback xf "
                     "--quiet"),
                 0);
    assert_true(drive_exists("xf/step-00000003/manifest.json"));
    drive_expect(run("--steps 1 --checkpoint fb --quiet"), 0);
    drive_expect(run("--steps 4 --checkpoint fb --checkpoint-fallback xf "
                     "--resume"),
                 78);
    drive_expect_output("xf belongs to another run");
    drive_expect_output("--adopt");
    drive_expect(run("--steps 4 --checkpoint fb --checkpoint-fallback xf "
                     "--resume --adopt --json"),
                 0);
    drive_expect_output("\"first_step\":1");
    assert_true(drive_exists("xf/former-1/step-00000003/manifest.json"));

    block_step("fc", true);
    drive_expect(run("--steps 3 --checkpoint fc --checkpoint-fallback yf "
                     "--quiet"),
                 0);
    drive_expect(run("--steps 4 --checkpoint fc --resume --json"), 0);
    drive_expect_output("\"first_step\":3");
    rename_in_folder("yf", "zf");
    drive_expect(run("--steps 5 --checkpoint fc --resume"), 78);
    drive_expect_output("yf, which is not there");
    drive_expect(run("--steps 5 --checkpoint fc --checkpoint-fallback zf "
                     "--resume --json"),
                 0);
    drive_expect(run("--steps 5 --checkpoint fc --checkpoint-fallback fc/"),
                 64);
    drive_expect_output("is the folder of --checkpoint");
}

static void change_byte(const char *name)
{
    char path[256];
    FILE *f;
    int c;

    (void)snprintf(path, sizeof(path), "%s/%s", drive.dir, name);
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* A damaged newest checkpoint is skipped with a warning; an older one is chosen
 * by its step. */
static void resumes_from_an_older_one(void **state)
{
    char loss[64], again[64];

    (void)state;
    drive_expect(run("--steps 6 --checkpoint old --checkpoint-every 1 --keep 0 "
                     "--json"),
                 0);
    json_value("loss", loss);
    change_byte("old/step-00000006/rank-001.safetensors");
    drive_expect("penstock checkpoints old --verify", 65);
    drive_expect_output("step-00000006/rank-001.safetensors: is damaged");
    drive_expect("penstock checkpoints old --pin 2 --remove 3 --json", 0);
    drive_expect_output("\"pinned\":true");
    assert_false(drive_exists("old/step-00000003"));
    drive_expect(run("--steps 6 --checkpoint old --resume --json --log-dir "
                     "logold"),
                 0);
    drive_expect_output(
        "passed over: step-00000006/rank-001.safetensors: is damaged");
    drive_await("logold/rank-0.log", "event=checkpoint_skipped", NULL);
    json_value("loss", again);
    assert_string_equal(loss, again);
    assert_true(drive_exists("old/step-00000002"));
    drive_expect(run("--steps 6 --checkpoint old --resume=2 --json"), 0);
    drive_expect_output("old/former-1 now");
    json_value("loss", again);
    assert_string_equal(loss, again);
    drive_expect(run("--steps 6 --checkpoint old --resume=4 --json"), 65);
    drive_expect_output("there are those of steps 6, 2");
}

/* After a loss that is not finite, checkpoints are bad; --resume continues from
 * the newest good one, which the next save keeps even with --keep 1. */
static void falls_back_to_a_good_one(void **state)
{
    (void)state;
    drive_expect(run("--steps 2 --checkpoint nan --keep 1 --quiet"), 0);
    drive_expect(run("--steps 50 --checkpoint nan --keep 1 --resume --lr 1e25 "
                     "--checkpoint-every 1"),
                 65);
    drive_expect_output("was not applied");
    drive_expect("penstock checkpoints nan", 0);
    drive_expect_output(" bad ");
    assert_true(drive_exists("nan/step-00000002/manifest.json"));
    drive_expect(run("--steps 4 --checkpoint nan --keep 1 --resume --json"), 0);
    drive_expect_output("passed over: step-0000000");
    drive_expect_output("is bad");
    drive_expect_output("\"first_step\":2");
}

static void names_a_bad_label(void **state)
{
    (void)state;
    drive_expect(run("--steps 3 --checkpoint ckbad --data bad.safetensors"),
                 65);
    drive_expect_output("step 1 was not applied"); /* steps count from 1 */
    drive_expect_output("rank 1, stage 1, microbatch 1");
    drive_expect_output("99");
    assert_false(drive_exists("ckbad/step-00000001"));
}

static void stops_in_order(void **state)
{
    pid_t pid;

    (void)state;
    pid = drive_start(run("--steps 1000000000 --checkpoint ckstop --log-dir "
                          "logstop"));
    drive_await("logstop/rank-0.log", "event=step", NULL);
    assert_int_equal(kill(pid, SIGTERM), 0);
    drive_expect_end(pid, 143);
    drive_expect_output("--resume goes on from there");
    assert_true(drive_exists("ckstop"));
    drive_await("logstop/rank-0.log", "event=stopped", NULL);
    drive_expect("penstock eval tiny.plan -m 2 --data data.safetensors "
                 "--checkpoint ckstop",
                 0);
    drive_expect_output(" (perplexity ");
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512] = "";
    const char *at;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    (void)fclose(f);
    at = strrchr(text, ')');
    assert_non_null(at);
    return (pid_t)strtol(at + 4, NULL, 10);
}

static pid_t pid_in(const char *log)
{
    char text[64];

    drive_await(log, " pid=", text);
    return (pid_t)strtol(text, NULL, 10);
}

/* SIGTERM reaches every process of a job. Its last save takes longer than a
 * launcher would wait, because a rank is stopped for that time. */
static void saves_after_a_signal_to_all(void **state)
{
    const bool mpi = strcmp(transport, "mpi") == 0;
    pid_t client, ranks[2], launcher;

    (void)state;
    client = drive_start(run("--steps 1000000000 --checkpoint ckall --log-dir "
                             "logall"));
    drive_await("logall/rank-0.log", "event=step", NULL);
    ranks[0] = pid_in("logall/rank-0.log");
    ranks[1] = mpi ? pid_in("logall/rank-1.log") : ranks[0];
    launcher = mpi ? parent_of(ranks[0]) : ranks[0];
    assert_int_equal(kill(ranks[1], SIGSTOP), 0);
    assert_int_equal(kill(client, SIGTERM), 0);
    assert_int_equal(kill(launcher, SIGTERM), 0);
    for (unsigned i = 0; i < 2 && mpi; i++)
        assert_int_equal(kill(ranks[i], SIGTERM), 0);
    (void)usleep(2600000);
    assert_int_equal(kill(ranks[1], SIGCONT), 0);
    drive_expect_end(client, 143);
    drive_expect_output("--resume goes on from there");
    drive_await("logall/rank-0.log", "event=checkpoint_saved", NULL);
    drive_expect("penstock checkpoints ckall --verify", 0);
    drive_expect_output(" good ");
}

static void saves_elsewhere_or_later(void **state)
{
    pid_t pid;

    (void)state;
    block_step("lost", true);
    drive_expect(run("--steps 3 --checkpoint lost --checkpoint-retry 0"), 74);
    drive_expect_output("the last checkpoint, of step 3, is lost");
    drive_expect_output("--checkpoint-fallback DIR");
    assert_null(strstr(drive.text, "Free space")); /* space is not the cause */
    pid = drive_start(run("--steps 3 --checkpoint lost --checkpoint-retry 30 "
                          "--log-dir loglost"));
    drive_await("loglost/rank-0.log", "event=checkpoint_failed", NULL);
    block_step("lost", false);
    drive_expect_end(pid, 0);
    assert_true(drive_exists("lost/step-00000003/manifest.json"));

    block_step("first", true);
    drive_expect(run("--steps 3 --checkpoint first --checkpoint-fallback "
                     "second"),
                 0);
    drive_expect_output("checkpoint of step 3 saved in ");
    assert_true(drive_exists("second/step-00000003/manifest.json"));
    drive_expect(run("--steps 5 --checkpoint first --checkpoint-fallback "
                     "second --resume --json"),
                 0);
    drive_expect_output("\"first_step\":3");
    assert_true(drive_exists("first/step-00000005/manifest.json"));
    drive_expect(run("--steps 2 --checkpoint data.safetensors/x "
                     "--checkpoint-fallback third"),
                 0);
    assert_true(drive_exists("third/step-00000002/manifest.json"));
}

/* A run that `penstock stop` ends from another shell exits with an error. */
static void reports_when_another_stops_it(void **state)
{
    pid_t pid;

    (void)state;
    pid = drive_start(run("--steps 1000000000 --log-dir logother --socket o"));
    drive_await("logother/rank-0.log", "event=step", NULL);
    drive_expect("penstock stop --now --socket o", 0);
    drive_expect_end(pid, 130);
    drive_expect_output("penstock: stopped after step");
}

/* Waits until the rank that writes this log has made steps, sends it the
 * signal, and returns its pid. */
static pid_t signal_rank(const char *log, int number)
{
    char text[64];
    pid_t pid;

    drive_await(log, "event=step", NULL);
    drive_await(log, " pid=", text);
    pid = (pid_t)strtol(text, NULL, 10);
    assert_int_equal(kill(pid, number), 0);
    return pid;
}

static void kill_rank(const char *log)
{
    (void)signal_rank(log, SIGKILL);
}

/* If a rank is stopped, the other one reports that it waits for it. */
static void names_a_rank_that_stands_still(void **state)
{
    pid_t pid, still;

    (void)state;
    pid =
        drive_start(run("--steps 1000000000 --watchdog 7 --log-dir logstill"));
    still = signal_rank("logstill/rank-1.log", SIGSTOP);
    drive_expect_end(pid, 1);
    (void)kill(still, SIGCONT); /* the rank has ended already if all is well */
    drive_expect_output("rank 0 waits ");
    /* rank 1 owes a message, or does not receive one */
    drive_expect_output(": rank 1 ");
}

/* A run reports how a measured step was spent, and writes costs that `plan` can
 * use. */
static void measures_a_step(void **state)
{
    char work[64];

    (void)state;
    drive_expect(run("--steps 6 --json --write-costs costs.json"), 0);
    json_value("work", work);
    assert_true(strtod(work, NULL) > 0 && strtod(work, NULL) <= 1);
    drive_expect("penstock plan tiny.plan -n 2 -m 2 --costs costs.json", 0);
}

/* The log and the plan name the libraries of matrix products, also kernels that
 * OPENBLAS_CORETYPE has chosen. */
static void reports_which_kernels_multiply(void **state)
{
    static const char *const plan = "penstock plan tiny.plan -n 2 -m 2";
    const char *before = getenv("OPENBLAS_CORETYPE");
    char *kept = before != NULL ? strdup(before) : NULL;

    (void)state;
    assert_int_equal(setenv("OPENBLAS_CORETYPE", "Prescott", 1), 0);
    drive_expect(plan, 0);
    drive_expect_output("Prescott kernels (OPENBLAS_CORETYPE is set)");
    drive_expect(run("--steps 1 --log-dir logcore"), 0);
    drive_await("logcore/rank-0.log", "event=start", NULL);
    drive_await("logcore/rank-0.log", "Prescott kernels", NULL);
    unsetenv("OPENBLAS_CORETYPE");
    drive_expect("penstock plan tiny.plan -n 2 -m 2 --dtype bf16", 0);
    drive_expect_output("operands rounded to bf16, multiplied in ");
    assert_int_equal(setenv("XDG_CACHE_HOME", drive.dir, 1), 0);
    drive_expect("penstock calibrate", 0);
    drive_expect_output("products f32 ");
    drive_expect_output("GB/s a core (measured); kept in ");
    assert_true(drive_exists("penstock/rates"));
    drive_expect(plan, 0);
    drive_expect_output("GB/s a core (measured)\n");
    unsetenv("XDG_CACHE_HOME");
    drive_expect(plan, 0);
    drive_expect_output("times: products f32 ");
    drive_expect_output("kernels for ");
    if (pst_cpu_isa() != PST_ISA_ANY)
        assert_null(strstr(drive.text, "Prescott"));
    if (kept != NULL)
        setenv("OPENBLAS_CORETYPE", kept, 1);
    free(kept);
}

/* More replicas than microbatches are refused before anything runs. A model
 * that counts its microbatches in a buffer can be trained with replicas. */
static void takes_replicas(void **state)
{
    (void)state;
    drive_expect(run("--steps 1 -n 3x1"), 64);
    drive_expect_output("3 replicas need at least as many microbatches");
    drive_expect(run("--steps 1 -n 2x1"), 0);
}

static void ends_when_a_rank_is_killed(void **state)
{
    pid_t pid;

    (void)state;
    for (unsigned rank = 0; rank < 2; rank++) {
        char options[128], log[64], text[64];

        (void)snprintf(options, sizeof(options),
                       "--steps 1000000000 --log-dir logkill%u", rank);
        (void)snprintf(log, sizeof(log), "logkill%u/rank-%u.log", rank, rank);
        pid = drive_start(run(options));
        kill_rank(log);
        drive_expect_end(pid, 1); /* takes 2.2 s on an idle machine */
        (void)snprintf(text, sizeof(text),
                       "rank %u (stages %u) was killed by signal 9", rank,
                       rank);
        drive_expect_output(text);
    }
}

static void ends_when_the_process_is_killed(void **state)
{
    pid_t pid;

    (void)state;
    pid = drive_start(run("--steps 1000000000 --log-dir logkill"));
    kill_rank("logkill/rank-0.log");
    drive_expect_end(pid, 1);
    drive_expect_output("was killed by signal 9");
}

static void refuses_bad_input(void **state)
{
    static const struct {
        const char *command;
        int code;
        const char *says;
    } cases[] = {
        {"penstock", 64, "usage"},
        {"penstock splt", 64, "did you mean split?"},
        {"penstock foo", 64, "see penstock --help"},
        {"penstock split --stges 2", 64, "did you mean --stages?"},
        {"penstock split data.safetensors -o x.plan", 65, "zip"},
        {"penstock eval tiny.plan --lr 1", 64, "unknown option --lr"},
        {"penstock plan tiny.plan --log-dir x", 64, "--log-dir"},
        {"penstock verify tiny.plan --optimizer sgd", 64, "--optimizer"},
        {"penstock show tiny.plan --schedule gpipe", 64, "--schedule"},
        {"penstock show", 64, "MODEL.pt2 or PLAN"},
        {"penstock show tiny.plan --after coffee", 64,
         "there is no pass \"coffee\"; --after takes document, weights,"},
        {"penstock show tiny.plan --after nodes", 64, "give the .pt2 file"},
        {"penstock show tiny.pt2 --after nodes --stages 2", 64,
         "--stages has no effect"},
        {"penstock show tiny.plan --after fusion --stage 2", 64, "no stage 2"},
        {"penstock split tiny.plan -o x.plan", 64, "folder"},
        {"penstock run tiny.plan -n 2", 64, "--data FILE is missing"},
        {"penstock run tiny.plan -n 2 --stages 2 --data data.safetensors", 64,
         "split already"},
        {"penstock run tiny.plan -n 3 --transport self -m 2 --data "
         "data.safetensors",
         64, "data parallelism"},
        {"penstock run tiny.plan -n 2 --transport self --schedule zb-h9 -m 2 "
         "--data data.safetensors",
         64, "gpipe"},
        {"penstock plan tiny.plan -n 2 -m 2 --schedule zb-v", 64,
         "split into 4 stages, or take 1 rank"},
        {"penstock plan tiny.plan -m 2 --chunk tokens=0,labels=1,tokens=1", 64,
         "--chunk tokens=1: the input is named twice"},
        {"penstock plan tiny.plan -n 2 -m 2 --place 0=0", 64,
         "gives stage 1 of 2 no rank"},
        {"penstock plan tiny.plan -n 2 -m 2 --place 0=0,0=1,1=1", 64,
         "name it once"},
        {"penstock plan tiny.plan -n 2 -m 2 --schedule csv:missing.csv", 74,
         "missing.csv"},
        {"penstock plan tiny.plan -n 2 -m 2 --schedule csv:tiny.pt2", 65,
         "line 1, column 1"},
        {"penstock run tiny.plan -n 2 --transport self --optimizer adamm -m 2 "
         "--data data.safetensors",
         64, "adamw"},
        {"penstock run tiny.plan -n 2 --transport self -m 2 --data "
         "data.safetensors --resume",
         64, "--checkpoint"},
        {"penstock run tiny.plan -n 2 --transport self -m 2 --data "
         "data.safetensors --resume --checkpoint none",
         65, "no checkpoint"},
        {"penstock run tiny.plan -n 2 --transport self -m 2 --data "
         "missing.safetensors",
         74, "missing.safetensors"},
        {"penstock run tiny.plan --transport self -m 2 --data "
         "data.safetensors --optimizer sgd --beta1 0.5",
         64, "--beta1 is an option of --optimizer adamw, adam, adamax, lion"},
        {"penstock run tiny.plan --transport self -m 2 --data "
         "data.safetensors --optimizer adam --lr-decay 0.5",
         64, "--lr-decay is an option of --optimizer adagrad, not of adam"},
        {"penstock run tiny.plan --transport self -m 2 --data "
         "data.safetensors --optimizer adam --centered",
         64, "--centered is an option of --optimizer rmsprop, not of adam"},
        {"penstock run tiny.plan --transport self -m 2 --data "
         "data.safetensors --seq-len 8",
         64, "--seq-len is for files of tokens"},
        {"penstock run tiny.plan --data data.safetensors --reference -n 2", 64,
         "leave out -n"},
        {"penstock run tiny.plan --data missing.txt", 74, "missing.txt"},
        {"penstock split tiny.pt2 -o x.plan --loss none --loss-fn mse", 64,
         "give one of them"},
        {"penstock split tiny.pt2 -o x.plan --loss-fn mze", 64,
         "did you mean mse?"},
        {"penstock split tiny.pt2 -o x.plan --loss 77", 65, "no output"},
        {"penstock split tiny.pt2 -o data.safetensors", 64, "is a file"},
        {"penstock infer tiny.plan --prompt abc", 65,
         "the logits depend on input 'extra.scale'"},
        {"penstock status", 69, "no job is running"},
        {"penstock status --socket nothing.sock", 69, "nothing.sock"},
        {"penstockd", 64, "one PLAN is wanted"},
        {"penstockd tiny.pt2", 64, "`penstock split` makes"},
        {"penstockd nothing.plan", 74, "nothing.plan"},
        {"penstockd tiny.plan --socket "
         "/tmp/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         78, "107"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        drive_expect(cases[i].command, cases[i].code);
        drive_expect_output(cases[i].says);
    }
    assert_false(drive_exists("x.plan"));
}

static void looks_at_plans(void **state)
{
    (void)state;
    drive_expect("penstock show tiny.plan", 0);
    drive_expect_output("head.weight");
    drive_expect("penstock show tiny.pt2", 0);
    drive_expect_output("aten.embedding");
    drive_expect("penstock show tiny.pt2 --stages 2 --json", 0);
    drive_expect_output("\"stage_count\": 2");
    drive_expect("penstock show tiny.plan --stage 1 --json", 0);
    drive_expect("penstock show tiny.plan --modules", 0);
    drive_expect_output("emb");
    drive_expect("penstock show tiny.plan --kernels", 0);
    drive_expect("penstock show --passes", 0);
    drive_expect_output("drops constants");
    drive_expect_output("nodes        the nodes in program order");
    drive_expect("penstock show --passes --json", 0);
    drive_expect_output("\"pass\":\"backward\"");
    drive_expect("penstock show tiny.pt2 --after targets", 0);
    drive_expect_output("no graph yet");
    drive_expect("penstock show tiny.pt2 --after nodes --json", 0);
    drive_expect_output("\"after\":\"nodes\",\"graph\"");
    drive_expect("penstock show tiny.plan --after backward", 0);
    drive_expect_output("penstock.accumulate_grad");
    drive_expect("penstock show tiny.pt2 --stages 2 --stage 1 --after operands",
                 0);
    drive_expect_output("list B work=");
    drive_expect("penstock show tiny.plan --after kernels --json", 0);
    drive_expect_output("\"after\":\"kernels\"");
    drive_expect("penstock plan tiny.plan -n 2 -m 4 --schedule gpipe "
                 "--optimizer sgd --momentum 0.9 --json",
                 0);
    drive_expect_output("\"arena_bytes\":");
    drive_expect("penstock infer gpt.pt2 --tokens 5 "
                 "--temperature 1 --seed 3 --json",
                 0);
    drive_expect_output("\"tokens\":5");
    drive_expect("penstock help run", 0);
    drive_expect_output("--microbatches");
}

/* Schedules are written to a file and read back. The stages are placed in
 * reverse order. */
static void runs_lists_from_a_file(void **state)
{
    (void)state;
    drive_expect("penstock plan tiny.plan -n 2 -m 4 --schedule zb-h1 "
                 "--place 0=1,1=0 --csv lists.csv",
                 0);
    drive_expect_output("not where zb-h1 has them");
    drive_expect("penstock verify tiny.plan -n 2 -m 4 --schedule csv:lists.csv",
                 0);
    drive_expect("penstock run tiny.plan -n 2 --transport self -m 4 --steps 2 "
                 "--schedule csv:lists.csv --data data.safetensors --json",
                 0);
    drive_expect("penstock plan tiny.plan -n 2 -m 3 --schedule csv:lists.csv",
                 65);
    drive_expect_output("set --microbatches so");
    drive_expect("penstock run tiny.plan -n 2x2 --transport self -m 4 "
                 "--schedule csv:lists.csv --data data.safetensors",
                 65);
    drive_expect_output("4 microbatches of each of the 2 replicas, not 2");
    drive_expect_output("set it to 8");
}

/* Errors in a schedule file are reported with their line. */
static void names_the_line_of_a_fault(void **state)
{
    static const struct {
        const char *text, *says;
    } faults[] = {
        {"0F0,0B0\n1F0,1X0\n", "bad.csv line 2, column 5: '1X0'"},
        {"0F0,0B0\n1B0,1F0\n",
         "bad.csv: schedule: line 2 (rank 1), action 0 (1B0)"},
        {"0F0,0B0\n1F0,1B0,1B0\n",
         "bad.csv: schedule: line 2 (rank 1), action 2 (1B0): done a second"},
        {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
         "bad.csv: the schedule deadlocks, each of these actions waits for "
         "one that comes later; line 1 (rank 0), action 1 (0B0)"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(faults); i++) {
        char path[128];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/bad.csv", drive.dir);
        f = fopen(path, "we");
        assert_non_null(f);
        assert_true(fputs(faults[i].text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        drive_expect(i < 3 ? "penstock plan tiny.plan -n 2 -m 1 --schedule "
                             "csv:bad.csv"
                           : "penstock plan tiny.plan -n 2 -m 2 --schedule "
                             "csv:bad.csv",
                     65);
        drive_expect_output(faults[i].says);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest self[] = {
        cmocka_unit_test(trains_and_resumes_bit_for_bit),
        cmocka_unit_test(resumes_if_there_is_one),
        cmocka_unit_test(misses_a_folder),
        cmocka_unit_test(saves_after_a_signal_to_all),
        cmocka_unit_test(saves_elsewhere_or_later),
        cmocka_unit_test(keeps_runs_apart),
        cmocka_unit_test(keeps_fallbacks_apart),
        cmocka_unit_test(resumes_from_an_older_one),
        cmocka_unit_test(falls_back_to_a_good_one),
        cmocka_unit_test(names_a_bad_label),
        cmocka_unit_test(stops_in_order),
        cmocka_unit_test(reports_when_another_stops_it),
        cmocka_unit_test(ends_when_the_process_is_killed),
        cmocka_unit_test(refuses_bad_input),
        cmocka_unit_test(looks_at_plans),
        cmocka_unit_test(measures_a_step),
        cmocka_unit_test(reports_which_kernels_multiply),
        cmocka_unit_test(takes_replicas),
        cmocka_unit_test(runs_lists_from_a_file),
        cmocka_unit_test(names_the_line_of_a_fault),
    };
    const struct CMUnitTest mpi[] = {
        cmocka_unit_test(trains_and_resumes_bit_for_bit),
        cmocka_unit_test(resumes_if_there_is_one),
        cmocka_unit_test(saves_after_a_signal_to_all),
        cmocka_unit_test(saves_elsewhere_or_later),
        cmocka_unit_test(keeps_runs_apart),
        cmocka_unit_test(resumes_from_an_older_one),
        cmocka_unit_test(falls_back_to_a_good_one),
        cmocka_unit_test(names_a_bad_label),
        cmocka_unit_test(stops_in_order),
        cmocka_unit_test(ends_when_a_rank_is_killed),
        cmocka_unit_test(names_a_rank_that_stands_still),
        cmocka_unit_test(measures_a_step),
        cmocka_unit_test(takes_replicas),
    };

    if (argc > 1 && strcmp(argv[1], "mpi") == 0) {
        transport = "mpi";
        return cmocka_run_group_tests_name("run-mpi", mpi, drive_setup,
                                           drive_teardown);
    }
    return cmocka_run_group_tests_name("run-self", self, drive_setup,
                                       drive_teardown);
}
