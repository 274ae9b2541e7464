// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the check with an independent player. The player runs the schedules
 * action by action with blocking sends, in random order. Schedules with a
 * planted fault must be refused exactly if the player finds that they break or
 * hang.
 */
#include "stages/sched/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sched/lines.h"
#include "tests/test.h"

#define MAX_S 6
#define MAX_N 5

static uint32_t seed = 20260101;
static unsigned n_faults = 10000;

static unsigned pick(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

struct world {
    struct pst_schedule *sched;
    struct pst_link links[MAX_S * MAX_S];
    size_t n_links;
    unsigned stages[3][MAX_S];
    struct pst_shared shared[3];
    size_t n_shared;
};

/* --- the player -------------------------------------------------------- */

enum { DONE_F = 1, DONE_I = 2, DONE_W = 4 };
enum { POSTED = 1, SENT = 2, HANDED = 4 };

struct state {
    unsigned char done[MAX_S][MAX_N];
    /* By direction (1: backward), sender, receiver. */
    unsigned char mail[2][MAX_S][MAX_S][MAX_N];
    unsigned char grad[MAX_S][MAX_S], link[MAX_S][MAX_S];
    size_t next[MAX_S];
    unsigned char reduced[3][MAX_S];
    unsigned char fetched[MAX_S], used[MAX_S];
};

enum outcome { MOVES, WAITS, BREAKS };

/* True if there is no such message. Messages to a lower stage carry the buffer
 * of the preceding microbatch, and microbatch 0 has none. */
static bool is_first(int backward, int from, int to, int m)
{
    return !backward && from > to && m == 0;
}

static enum outcome inputs_there(const struct state *s, int backward, int stage,
                                 int m, unsigned stages)
{
    enum outcome outcome = MOVES;

    for (unsigned o = 0; o < stages; o++) {
        const int linked = backward ? s->grad[stage][o] : s->link[o][stage];
        const unsigned mail = s->mail[backward][o][stage][m];

        if (!linked || mail == HANDED || is_first(backward, (int)o, stage, m))
            continue;
        if (!(mail & POSTED))
            return BREAKS; /* it will never be posted */
        if (!(mail & SENT))
            outcome = WAITS;
    }
    return outcome;
}

static enum outcome play_compute(struct state *s, const struct world *w,
                                 const struct pst_action *a)
{
    unsigned char *done = &s->done[a->stage][a->microbatch];
    const unsigned adds = a->kind == PST_ACT_F   ? DONE_F
                          : a->kind == PST_ACT_I ? DONE_I
                          : a->kind == PST_ACT_W ? DONE_W
                                                 : DONE_I | DONE_W;
    const unsigned needs = a->kind == PST_ACT_F   ? 0
                           : a->kind == PST_ACT_W ? DONE_F | DONE_I
                                                  : DONE_F;
    enum outcome outcome = MOVES;

    if ((*done & adds) || (*done & needs) != needs ||
        (a->kind != PST_ACT_F && !w->sched->train))
        return BREAKS;
    if (a->kind != PST_ACT_W)
        outcome = inputs_there(s, a->kind != PST_ACT_F, a->stage, a->microbatch,
                               w->sched->n_stages);
    if (outcome == MOVES)
        *done |= adds;
    return outcome;
}

static enum outcome play_message(struct state *s, const struct world *w,
                                 int rank, const struct pst_action *a)
{
    const int back = a->kind == PST_ACT_SEND_B || a->kind == PST_ACT_RECV_B ||
                     a->kind == PST_ACT_COPY_B;
    const int recv = a->kind == PST_ACT_RECV_F || a->kind == PST_ACT_RECV_B;
    const int copy = a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B;
    const int from = recv ? a->peer_stage : a->stage;
    const int to = recv ? a->stage : a->peer_stage;
    const unsigned bit = recv ? POSTED : copy ? HANDED : SENT;
    const int m = a->microbatch - (!back && !recv && from > to);
    unsigned char *mail;
    unsigned done;

    if (a->peer_stage < 0 || a->peer_stage >= (int)w->sched->n_stages ||
        w->sched->rank_of[a->peer_stage] != a->peer ||
        (a->peer == rank) != copy)
        return BREAKS;
    if (!(back ? s->grad[to][from] : s->link[from][to]) ||
        (back && !w->sched->train) || is_first(back, from, to, a->microbatch))
        return BREAKS;
    done = s->done[a->stage][m];
    mail = &s->mail[back][from][to][a->microbatch];
    if ((*mail & bit) || recv == !!(done & (back ? DONE_I : DONE_F)))
        return BREAKS;
    if (bit == SENT && !(*mail & POSTED))
        return WAITS;
    *mail |= bit;
    return MOVES;
}

static enum outcome play_reduce(struct state *s, const struct world *w,
                                int rank, const struct pst_action *a)
{
    const struct pst_schedule *sched = w->sched;
    size_t k = 0;
    int mine = 0;

    while (k < w->n_shared && w->shared[k].param != a->param)
        k++;
    if (!sched->train || k == w->n_shared ||
        a->stage != (int)w->shared[k].stages[0])
        return BREAKS;
    for (unsigned j = 0; j < w->shared[k].n_stages; j++) {
        const unsigned stage = w->shared[k].stages[j];

        if (sched->rank_of[stage] != rank)
            continue;
        mine = 1;
        for (unsigned m = 0; m < sched->n_microbatches; m++)
            if (s->done[stage][m] != (DONE_F | DONE_I | DONE_W))
                return BREAKS;
    }
    if (!mine || s->reduced[k][rank] == 2)
        return BREAKS;
    /* `reduced` is 1 once a rank has arrived, 2 once it has left; none leaves
     * before all have arrived. */
    s->reduced[k][rank] = 1;
    for (unsigned j = 0; j < w->shared[k].n_stages; j++)
        if (!s->reduced[k][sched->rank_of[w->shared[k].stages[j]]])
            return WAITS;
    s->reduced[k][rank] = 2;
    return MOVES;
}

/* Plays UNSHARD or RESHARD: `fetched` is 1 while the parameters of the stage
 * are present. */
static enum outcome play_transfer(struct state *s, const struct pst_action *a)
{
    const int fetch = a->kind == PST_ACT_UNSHARD;

    if (s->fetched[a->stage] == fetch || s->used[a->stage] == 1)
        return BREAKS;
    s->fetched[a->stage] = (unsigned char)fetch;
    s->used[a->stage] = 2;
    return MOVES;
}

static enum outcome play(struct state *s, const struct world *w, int rank)
{
    const struct pst_action *a = &w->sched->ranks[rank].at[s->next[rank]];

    if (a->kind >= PST_ACT_IDLE || a->stage < 0 ||
        a->stage >= (int)w->sched->n_stages)
        return BREAKS;
    if (a->kind == PST_ACT_REDUCE)
        return play_reduce(s, w, rank, a);
    if (w->sched->rank_of[a->stage] == rank &&
        (a->kind == PST_ACT_UNSHARD || a->kind == PST_ACT_RESHARD))
        return play_transfer(s, a);
    if (w->sched->rank_of[a->stage] != rank || a->microbatch < 0 ||
        a->microbatch >= (int)w->sched->n_microbatches)
        return BREAKS;
    if (a->kind > PST_ACT_W)
        return play_message(s, w, rank, a);
    if (s->used[a->stage] == 2 && !s->fetched[a->stage])
        return BREAKS;
    if (!s->used[a->stage])
        s->used[a->stage] = 1;
    return play_compute(s, w, a);
}

static int all_done(const struct state *s, const struct world *w)
{
    const struct pst_schedule *sched = w->sched;
    const unsigned want = sched->train ? DONE_F | DONE_I | DONE_W : DONE_F;

    for (unsigned st = 0; st < sched->n_stages; st++)
        if (s->fetched[st])
            return 0;
    for (unsigned m = 0; m < sched->n_microbatches; m++) {
        for (unsigned st = 0; st < sched->n_stages; st++)
            if (s->done[st][m] != want)
                return 0;
        for (size_t i = 0; i < w->n_links; i++) {
            const struct pst_link *l = &w->links[i];
            const unsigned moved =
                sched->rank_of[l->from] == sched->rank_of[l->to]
                    ? HANDED
                    : POSTED | SENT;

            if ((s->mail[0][l->from][l->to][m] != moved &&
                 !is_first(0, l->from, l->to, (int)m)) ||
                (l->grad && sched->train &&
                 s->mail[1][l->to][l->from][m] != moved))
                return 0;
        }
    }
    for (size_t k = 0; k < w->n_shared && sched->train; k++)
        for (unsigned j = 0; j < w->shared[k].n_stages; j++)
            if (s->reduced[k][sched->rank_of[w->shared[k].stages[j]]] != 2)
                return 0;
    return 1;
}

static int player_accepts(const struct world *w)
{
    const unsigned ranks = w->sched->n_ranks;
    struct state s = {0};
    unsigned idle = 0;

    for (size_t i = 0; i < w->n_links; i++) {
        s.link[w->links[i].from][w->links[i].to] = 1;
        s.grad[w->links[i].from][w->links[i].to] = w->links[i].grad;
    }
    for (unsigned r = pick(ranks); idle < ranks; r = (r + 1) % ranks) {
        idle++;
        while (s.next[r] < w->sched->ranks[r].n) {
            const enum outcome outcome = play(&s, w, (int)r);

            if (outcome == BREAKS)
                return 0;
            if (outcome == WAITS)
                break;
            s.next[r]++;
            idle = 0;
            if (!pick(3))
                break;
        }
    }
    for (unsigned r = 0; r < ranks; r++)
        if (s.next[r] < w->sched->ranks[r].n)
            return 0; /* hangs */
    return all_done(&s, w);
}

/* --- random plans ------------------------------------------------------ */

static void push(struct pst_schedule *s, int rank, enum pst_action_kind kind,
                 unsigned stage, unsigned m)
{
    const struct pst_action a = {
        (uint8_t)kind, (int16_t)stage, (int32_t)m, -1, -1, -1};

    assert_true(pst_vec_push(PST_TAG_PLAN, &s->ranks[rank], a));
}

/* Makes a schedule with stages dealt out to ranks in turn: all F, then I, then
 * W. */
static void deal_out(struct pst_schedule *s)
{
    for (unsigned r = 0; r < s->n_ranks; r++)
        s->ranks[r].n = 0;
    for (unsigned st = 0; st < s->n_stages; st++)
        s->rank_of[st] = (int)(st % s->n_ranks);
    for (unsigned m = 0; m < s->n_microbatches; m++)
        for (unsigned st = 0; st < s->n_stages; st++)
            push(s, s->rank_of[st], PST_ACT_F, st, m);
    for (unsigned part = 0; part < 2 && s->train; part++)
        for (unsigned m = s->n_microbatches; m-- > 0;)
            for (unsigned st = s->n_stages; st-- > 0;)
                push(s, s->rank_of[st], part ? PST_ACT_W : PST_ACT_I, st, m);
}

/* Writes "0=1,1=0,2=1": each rank has at least one stage. */
static void random_place(unsigned stages, unsigned ranks, char *out,
                         size_t size)
{
    unsigned rank[MAX_S];
    size_t len = 0;

    for (unsigned st = 0; st < stages; st++)
        rank[st] = st < ranks ? st : pick(ranks);
    for (unsigned st = stages; st-- > 1;) {
        const unsigned other = pick(st + 1), kept = rank[st];

        rank[st] = rank[other];
        rank[other] = kept;
    }
    for (unsigned st = 0; st < stages; st++)
        len += (size_t)snprintf(out + len, size - len, "%s%u=%u", st ? "," : "",
                                st, rank[st]);
}

/* Makes a random schedule, in some cases with a random placement. */
static void make_any(struct world *w)
{
    size_t n;
    const struct pst_sched_row *rows = pst_sched_rows(&n);
    enum pst_status status;
    char place[64];

    do {
        struct pst_schedule_options o = {.stages = 1 + pick(MAX_S),
                                         .microbatches = 1 + pick(MAX_N),
                                         .train = pick(5) > 0};
        const struct pst_sched_row *row = &rows[pick((unsigned)n)];

        o.ranks = 1 + pick(o.stages);
        o.name = row->name;
        if (row->any_place && pick(2)) {
            random_place(o.stages, o.ranks, place, sizeof(place));
            o.place = place;
        }
        status = pst_schedule_make(&o, &w->sched, NULL);
        if (status != PST_OK)
            assert_true(status == PST_ERR_USAGE &&
                        (row->per_rank || !row->trains));
    } while (status != PST_OK);
}

static void world_init(struct world *w)
{
    struct pst_diag diag;
    unsigned stages;
    bool carries;

    memset(w, 0, sizeof(*w));
    make_any(w);
    stages = w->sched->n_stages;
    if (pick(6) == 0)
        deal_out(w->sched);
    carries = pick(3) == 0;
    for (int a = 0; a < (int)stages; a++)
        for (int b = a + 1; b < (int)stages; b++) {
            if (pick(10) < (b == a + 1 ? 9u : 3u))
                w->links[w->n_links++] = (struct pst_link){a, b, pick(4) > 0};
            if (carries && pick(4) == 0)
                w->links[w->n_links++] = (struct pst_link){b, a, false};
        }
    w->n_shared = pick(4);
    for (unsigned k = 0; k < w->n_shared; k++) {
        struct pst_shared *sh = &w->shared[k];

        *sh = (struct pst_shared){10 - (int)k, w->stages[k], 0};
        for (unsigned st = 0; st < stages; st++)
            if (pick(2))
                w->stages[k][sh->n_stages++] = st;
        if (!sh->n_stages)
            w->stages[k][sh->n_stages++] = pick(stages);
    }
    assert_ok(pst_schedule_carry(w->sched, w->links, w->n_links, &diag), &diag);
    assert_ok(pst_schedule_lower(w->sched, w->links, w->n_links, w->shared,
                                 w->n_shared, pick(4), &diag),
              &diag);
}

static enum pst_status check(const struct world *w, struct pst_diag *diag)
{
    return pst_schedule_check(w->sched, w->links, w->n_links, w->shared,
                              w->n_shared, diag);
}

static void assert_simulates(const struct pst_schedule *sched)
{
    struct pst_costs costs;
    struct pst_diag diag;
    struct pst_sim sim;

    assert_ok(pst_costs_init(&costs, sched->n_stages, &diag), &diag);
    for (unsigned st = 0; st < sched->n_stages; st++)
        costs.stages[st].seconds = (struct pst_seconds){1, 1, 1};
    assert_ok(pst_schedule_simulate(sched, &costs, &sim, &diag), &diag);
    assert_true(sim.makespan >= (sched->train ? 3 : 1) * sched->n_microbatches);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
}

static void random_plans_are_valid(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        struct pst_diag diag;
        struct world w;

        world_init(&w);
        assert_ok(check(&w, &diag), &diag);
        assert_true(player_accepts(&w));
        assert_simulates(w.sched);
        pst_schedule_free(w.sched);
    }
}

/* --- faults ------------------------------------------------------------ */

static void redirect(struct pst_schedule *s, struct pst_action *a)
{
    switch (pick(6)) {
    case 0:
        a->stage = (int16_t)pick(s->n_stages);
        break;
    case 1:
        a->microbatch = (int)pick(s->n_microbatches + 1);
        break;
    case 2:
        a->peer_stage = (int16_t)pick(s->n_stages);
        a->peer = (int16_t)s->rank_of[a->peer_stage];
        break;
    case 3:
        a->peer = (int16_t)pick(s->n_ranks);
        break;
    case 4:
        a->param = 8 + (int)pick(4);
        break;
    default:
        a->kind = (uint8_t)pick(PST_N_ACTIONS + 1);
    }
}

static void plant_fault(struct pst_schedule *s)
{
    const unsigned r = pick(s->n_ranks);
    const unsigned n = (unsigned)s->ranks[r].n, i = pick(n), j = pick(n);
    struct pst_action *at = s->ranks[r].at;
    const struct pst_action kept = at[i];

    switch (pick(4)) {
    case 0:
        at[i] = at[j];
        at[j] = kept;
        break;
    case 1:
        memmove(&at[i], &at[i + 1], (n - i - 1) * sizeof(*at));
        s->ranks[r].n--;
        break;
    case 2:
        push(s, (int)r, PST_ACT_F, 0, 0);
        at = s->ranks[r].at;
        memmove(&at[j + 1], &at[j], (n - j) * sizeof(*at));
        at[j] = kept;
        break;
    default:
        redirect(s, &at[i]);
    }
}

static void faults_are_refused(void **state)
{
    unsigned refused = 0, accepted = 0;

    (void)state;
    for (unsigned i = 0; i < n_faults; i++) {
        struct pst_diag diag;
        struct world w;
        enum pst_status status;

        world_init(&w);
        plant_fault(w.sched);
        status = check(&w, &diag);
        if (player_accepts(&w) != (status == PST_OK)) {
            struct pst_str text = {0};

            print_lines(w.sched, &text);
            fail_msg("round %u: check says %s (%s), the player does not:\n%s",
                     i, pst_status_name(status),
                     status == PST_OK ? "" : diag.text, pst_str_text(&text));
        }
        refused += status != PST_OK;
        accepted += status == PST_OK;
        if (status != PST_OK) {
            assert_int_equal(status, PST_ERR_INPUT);
            assert_non_null(strstr(diag.text, "rank "));
        }
        pst_schedule_free(w.sched);
    }
    /* Both results occur, or the test would prove little. */
    assert_true(refused > n_faults / 2 && accepted > n_faults / 50);
}

static void names_the_place(void **state)
{
    const struct pst_link link = {0, 1, true};
    const struct pst_schedule_options o = {"1f1b", 2, 2, 3, true, NULL};
    struct pst_schedule *s = NULL;
    struct pst_action *at, kept;
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_int_equal(pst_schedule_check(s, &link, 1, NULL, 0, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "no RECV_B or COPY_B from stage 1"));
    assert_ok(pst_schedule_lower(s, &link, 1, NULL, 0, 0, &diag), &diag);
    at = s->ranks[1].at;
    assert_int_equal(at[1].kind, PST_ACT_F);
    at[1].microbatch = 2;
    assert_int_equal(pst_schedule_check(s, &link, 1, NULL, 0, &diag),
                     PST_ERR_INPUT);
    assert_string_equal(
        diag.text,
        "schedule: rank 1, action 1 (1F2): no RECV_F or COPY_F from stage 0 "
        "before it; rank 1: 1RECV_F0 >>1F2<< 1RECV_F1 1B0 1SEND_B0 1F1 "
        "1RECV_F2 1B1 ...");
    at[1].microbatch = 0;
    /* A receive just before its use hangs if sends block. */
    kept = at[2];
    memmove(&at[2], &at[3], 2 * sizeof(*at));
    at[4] = kept;
    assert_int_equal(pst_schedule_check(s, &link, 1, NULL, 0, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "rank 0, action 3 (0SEND_F1) waits until "
                                      "rank 1 posts its receive"));
    assert_non_null(strstr(diag.text, "rank 1, action 3 (1SEND_B0) waits until "
                                      "rank 0 posts its receive"));
    pst_schedule_free(s);
}

static void refuses_bad_compute_lists(void **state)
{
    const struct pst_schedule_options o = {"gpipe", 2, 2, 2, true, NULL};
    const struct pst_link twice[] = {{0, 1, true}, {0, 1, false}};
    const struct pst_link back = {1, 0, true}, itself = {1, 1, false};
    const struct pst_link link = {0, 1, true};
    const unsigned owners[] = {1, 0};
    const struct pst_shared shared = {0, owners, 2};
    struct pst_schedule *s = NULL;
    struct pst_action kept;
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_int_equal(pst_schedule_lower(s, twice, 2, NULL, 0, 0, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(pst_schedule_lower(s, &back, 1, NULL, 0, 0, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(pst_schedule_lower(s, &itself, 1, NULL, 0, 0, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(pst_schedule_lower(s, &link, 1, &shared, 1, 0, &diag),
                     PST_ERR_INTERNAL);
    /* Rank 1 needs microbatch 1 first, rank 0 has B0 before F1. */
    kept = s->ranks[1].at[0];
    s->ranks[1].at[0] = s->ranks[1].at[1];
    s->ranks[1].at[1] = kept;
    kept = s->ranks[0].at[1];
    s->ranks[0].at[1] = s->ranks[0].at[2];
    s->ranks[0].at[2] = kept;
    assert_int_equal(pst_schedule_lower(s, &link, 1, NULL, 0, 0, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "deadlocks"));
    assert_non_null(strstr(diag.text, "rank 0, action 1 (0B0)"));
    assert_non_null(strstr(diag.text, "rank 1, action 0 (1F1)"));
    assert_non_null(strstr(diag.text, "rank 0: 0F0 >>0B0<< 0F1"));
    assert_non_null(strstr(diag.text, "rank 1: >>1F1<< 1F0"));
    pst_schedule_free(s);
}

/* test-sched-check [FAULTS [SEED]] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_are_valid),
        cmocka_unit_test(faults_are_refused),
        cmocka_unit_test(names_the_place),
        cmocka_unit_test(refuses_bad_compute_lists),
    };

    if (argc > 1)
        n_faults = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = (uint32_t)strtoul(argv[2], NULL, 10) | 1;
    return cmocka_run_group_tests_name("sched-check", tests, NULL, NULL);
}
