// SPDX-License-Identifier: Apache-2.0
/*
 * Tests schedules with a planted fault, including messages, read from a file:
 * each is refused before anything runs, or runs on transport self with the bits
 * of the uncut model. None hangs (alarm). The environment's PST_FAULTS is the
 * number of schedules.
 */
#include <stdlib.h>
#include <unistd.h>

#include "stages/tune/choose.h"
#include "tests/patience.h"
#include "tests/run/job.h"

#define MAX_STAGES 4
#define MAX_MB     4

static uint32_t seed = 20261121;
static struct net nets[MAX_STAGES + 1];
static struct pst_dump *wanted[MAX_MB + 1];

static unsigned pick(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

/* Returns the status of a run of one step, with its dump on PST_OK. */
static enum pst_status run_list(struct net *net,
                                const struct pst_exec_options *options,
                                struct pst_dump **ret)
{
    struct net_data data = net_data(net);
    struct pst_step_result result;
    struct pst_engine *engine = NULL;
    struct pst_transport *self;
    enum pst_status status;
    char ranks[16];

    (void)snprintf(ranks, sizeof(ranks), "%u", options->ranks);
    assert_ok(pst_transport_self.open(ranks, &self, &net->diag), &net->diag);
    status = pst_engine_new(net->plan, self, options, &engine, &net->diag);
    if (status == PST_OK) {
        assert_ok(
            pst_engine_step(engine, 0, net_fill, &data, 0, &result, &net->diag),
            &net->diag);
        assert_ok(pst_engine_dump_first(engine, ret, &net->diag), &net->diag);
    }
    pst_engine_free(engine);
    pst_transport_self.close(self);
    return status;
}

static void plant(struct pst_schedule *s)
{
    const unsigned r = pick(s->n_ranks);
    const unsigned n = (unsigned)s->ranks[r].n, i = pick(n), j = pick(n);
    struct pst_action *at = s->ranks[r].at;
    const struct pst_action kept = at[i];

    switch (pick(7)) {
    case 0:
        at[i] = at[j];
        at[j] = kept;
        break;
    case 1:
        memmove(&at[i], &at[i + 1], (n - i - 1) * sizeof(*at));
        s->ranks[r].n--;
        break;
    case 2:
        at[j] = kept;
        break;
    case 3:
        at[i].kind = (uint8_t)pick(PST_N_ACTIONS);
        break;
    case 4:
        at[i].stage = (int16_t)pick(s->n_stages);
        break;
    case 5:
        if (at[i].microbatch >= 0)
            at[i].microbatch = (int32_t)pick(s->n_microbatches);
        break;
    default:
        if (at[i].peer_stage >= 0)
            at[i].peer_stage = (int16_t)pick(s->n_stages);
    }
}

static void write_csv(const struct pst_schedule *s, char name[64])
{
    struct pst_str text = {0};
    FILE *file;
    int fd;

    for (unsigned r = 0; r < s->n_ranks; r++) {
        pst_actions_print(s->ranks[r].at, s->ranks[r].n, ",", &text);
        pst_str_add(&text, "\n");
    }
    strcpy(name, "csv:/tmp/penstock-fault-XXXXXX");
    fd = mkstemp(name + 4);
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    assert_true(fputs(pst_str_text(&text), file) >= 0);
    assert_int_equal(fclose(file), 0);
    pst_str_fini(&text);
}

/* Makes a random schedule of the net; NULL: not possible with these numbers. */
static struct pst_schedule *make_any(struct net *net,
                                     struct pst_exec_options *o)
{
    struct pst_schedule *s;
    const struct pst_sched_row *rows;
    size_t n;

    rows = pst_sched_rows(&n);
    *o = net_options(rows[pick((unsigned)n)].name,
                     1 + pick((unsigned)net->plan->stages.n), 1 + pick(MAX_MB),
                     "none");
    return pst_exec_schedule(net->plan, o, NULL, &s, NULL) == PST_OK ? s : NULL;
}

/* Plants a fault in a random schedule and runs it from a file: it must be
 * refused, or give the results of one stage. Returns true if it was refused. */
static bool try_fault(void)
{
    struct net *net = &nets[1 + pick(MAX_STAGES)];
    struct pst_exec_options options;
    struct pst_schedule *s = NULL;
    struct pst_dump *got = NULL;
    enum pst_status status;
    char name[64];

    while (!s)
        s = make_any(net, &options);
    plant(s);
    write_csv(s, name);
    pst_schedule_free(s);
    options.schedule = name;
    (void)alarm((unsigned)test_patience());
    status = run_list(net, &options, &got);
    (void)alarm(0);
    if (status == PST_OK)
        assert_same_dump(wanted[options.microbatches], got);
    else if (pst_status_exit_code(status) != 64 &&
             pst_status_exit_code(status) != 65)
        fail_msg("%s: %s", pst_status_name(status), net->diag.text);
    pst_dump_free(got);
    (void)unlink(name + 4);
    return status != PST_OK;
}

static void faults_are_refused_or_harmless(void **state)
{
    const char *count = getenv("PST_FAULTS");
    const unsigned n = count ? (unsigned)strtoul(count, NULL, 10) : 400;
    unsigned refused = 0;

    (void)state;
    for (unsigned k = 1; k <= MAX_STAGES; k++)
        net_init_as(&nets[k], k, NET_STILL);
    for (unsigned m = 1; m <= MAX_MB; m++) {
        struct pst_exec_options alone = net_options("gpipe", 1, m, "none");

        assert_ok(run_list(&nets[1], &alone, &wanted[m]), &nets[1].diag);
    }
    for (unsigned i = 0; i < n; i++)
        refused += try_fault();
    print_message("%u faults: %u refused, %u harmless\n", n, refused,
                  n - refused);
    assert_true(refused > n / 4 && n - refused > n / 20);
    for (unsigned m = 1; m <= MAX_MB; m++)
        pst_dump_free(wanted[m]);
    for (unsigned k = 1; k <= MAX_STAGES; k++)
        net_fini(&nets[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_refused_or_harmless),
    };

    return cmocka_run_group_tests_name("exec-faults", tests, NULL, NULL);
}
