// SPDX-License-Identifier: Apache-2.0
/*
 * Schedules from a file: one line per rank, cells separated by commas; an empty
 * cell is an idle slot. Accepts PyTorch's files, with or without messages. The
 * input is untrusted; the check after lowering proves what is not checked here.
 */
#include "stages/base/host/fs.h"
#include "stages/sched/generate.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE ((size_t)256 << 20)

struct reader {
    const char *name; /* name of the file */
    struct PST_VEC(struct pst_action) row;
    struct PST_VEC(int) rank_of; /* per stage; -1: not seen yet */
    struct pst_schedule *sched;
    unsigned line;
    size_t cap; /* capacity of sched->ranks */
    struct pst_diag *diag;
};

static enum pst_status record_stage(struct reader *r, int stage, size_t column)
{
    while (r->rank_of.n <= (size_t)stage)
        if (!pst_vec_push(PST_TAG_PLAN, &r->rank_of, -1))
            return pst_diag_nomem(r->diag, sizeof(int));
    if (r->rank_of.at[stage] < 0)
        r->rank_of.at[stage] = (int)r->line - 1;
    if (r->rank_of.at[stage] == (int)r->line - 1)
        return PST_OK;
    return pst_diag_set(r->diag, PST_E_SCHEDULE_CSV,
                        "%s line %u, column %zu: stage %d is on rank %d and "
                        "on rank %u: each stage has one rank",
                        r->name, r->line, column, stage, r->rank_of.at[stage],
                        r->line - 1);
}

/* True if the cell of `len` bytes has only blanks. */
static bool is_blank(const char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    return len == 0;
}

static enum pst_status read_cell(struct reader *r, const char *text, size_t len,
                                 size_t column)
{
    struct pst_action a[2] = {{PST_ACT_IDLE, -1, -1, -1, -1, -1}};
    enum pst_status status = PST_OK;
    unsigned n = 1;

    if (!is_blank(text, len))
        n = pst_action_parse(text, len, a);
    if (n == 0)
        return pst_diag_set(
            r->diag, PST_E_SCHEDULE_CSV,
            "%s line %u, column %zu: '%.*s' is not an action: [stage][kind]"
            "[microbatch], for instance 2F0, 2B0, 0SEND_F1, 0UNSHARD or "
            "(0F1;3B0)OVERLAP_F_B",
            r->name, r->line, column, (int)PST_MIN(len, (size_t)40), text);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        r->sched->idle |= a[i].kind == PST_ACT_IDLE;
        r->sched->messages |= pst_action_has_peer(a[i].kind);
        r->sched->train |= a[i].kind >= PST_ACT_B && a[i].kind <= PST_ACT_W;
        if (a[i].kind != PST_ACT_IDLE)
            status = record_stage(r, a[i].stage, column);
        if (a[i].microbatch >= PST_MAX_MICROBATCHES)
            return pst_diag_set(r->diag, PST_E_SCHEDULE_CSV,
                                "%s line %u, column %zu: microbatch %d is "
                                "beyond the limit of %d",
                                r->name, r->line, column, a[i].microbatch,
                                PST_MAX_MICROBATCHES);
        if (a[i].microbatch >= (int)r->sched->n_microbatches)
            r->sched->n_microbatches = (unsigned)a[i].microbatch + 1;
        if (status == PST_OK && !pst_vec_push(PST_TAG_PLAN, &r->row, a[i]))
            status = pst_diag_nomem(r->diag, sizeof(a[i]));
    }
    return status;
}

static enum pst_status read_line(struct reader *r, const char *text, size_t len)
{
    enum pst_status status = PST_OK;
    size_t begin = 0;

    while (status == PST_OK && begin <= len) {
        const char *comma = memchr(text + begin, ',', len - begin);
        const size_t end = comma ? (size_t)(comma - text) : len;

        /* Empty rows, rows of commas only and trailing commas are ignored. */
        if (end > begin || comma)
            status = read_cell(r, text + begin, end - begin, begin + 1);
        begin = end + 1;
    }
    return status;
}

/* Stores the row as the actions of the next rank. */
static enum pst_status end_row(struct reader *r)
{
    const size_t rank = r->line - 1;

    if (rank == r->cap) {
        const size_t cap = PST_MAX(r->cap * 2, (size_t)8);
        void *p = pst_realloc(PST_TAG_PLAN, r->sched->ranks,
                              cap * sizeof(*r->sched->ranks));

        if (!p)
            return pst_diag_nomem(r->diag, cap * sizeof(*r->sched->ranks));
        r->sched->ranks = p;
        r->cap = cap;
    }
    memcpy(&r->sched->ranks[rank], &r->row, sizeof(r->row));
    memset(&r->row, 0, sizeof(r->row));
    r->sched->n_ranks = r->line;
    return PST_OK;
}

static enum pst_status read_lines(struct reader *r, const char *text,
                                  size_t len)
{
    enum pst_status status = PST_OK;

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    for (size_t begin = 0; begin < len && status == PST_OK;) {
        const char *newline = memchr(text + begin, '\n', len - begin);
        const size_t end = newline ? (size_t)(newline - text) : len;
        const size_t cut = end > begin && text[end - 1] == '\r';

        if (++r->line > PST_MAX_STAGES)
            return pst_diag_set(r->diag, PST_E_SCHEDULE_CSV,
                                "%s line %u: more than %d ranks", r->name,
                                r->line, PST_MAX_STAGES);
        status = read_line(r, text + begin, end - begin - cut);
        if (status == PST_OK)
            status = end_row(r);
        begin = end + 1;
    }
    if (status == PST_OK && r->rank_of.n == 0)
        return pst_diag_set(r->diag, PST_E_SCHEDULE_CSV, "%s has no action",
                            r->name);
    return status;
}

enum pst_status pst_schedule_parse(const char *text, size_t len,
                                   const char *name, struct pst_schedule **ret,
                                   struct pst_diag *diag)
{
    struct reader r = {.name = name, .diag = diag};
    enum pst_status status;

    r.sched = pst_calloc(PST_TAG_PLAN, 1, sizeof(*r.sched));
    if (!r.sched)
        return pst_diag_nomem(diag, sizeof(*r.sched));
    r.sched->name = "csv";
    r.sched->lines = true;
    status = read_lines(&r, text, len);
    r.sched->rank_of = r.rank_of.at;
    r.sched->n_stages = (unsigned)r.rank_of.n;
    pst_vec_fini(&r.row);
    for (unsigned k = 0; k < r.sched->n_ranks && status == PST_OK; k++)
        for (size_t i = 0; i < r.sched->ranks[k].n; i++) {
            struct pst_action *a = &r.sched->ranks[k].at[i];

            if (a->peer_stage >= 0 && a->peer_stage < (int)r.sched->n_stages)
                a->peer = (int16_t)r.sched->rank_of[a->peer_stage];
        }
    if (status == PST_OK)
        *ret = r.sched;
    else
        pst_schedule_free(r.sched);
    return status;
}

/* --- csv:FILE ----------------------------------------------------------- */

static enum pst_status refuse_numbers(const char *path, unsigned got,
                                      const char *one, const char *more,
                                      unsigned want, const char *way_out,
                                      struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_SCHEDULE_CSV,
                        "%s is for %u %s%s, not %u: %s", path, got, one,
                        got == 1 ? "" : more, want, way_out);
}

static enum pst_status check_fits(const struct pst_schedule *s,
                                  const char *path,
                                  const struct pst_schedule_options *o,
                                  struct pst_diag *diag)
{
    if (s->n_ranks != o->ranks)
        return refuse_numbers(path, s->n_ranks, "rank", "s", o->ranks,
                              "one line for each rank", diag);
    if (s->n_stages > o->stages)
        return refuse_numbers(path, s->n_stages, "stage", "s", o->stages,
                              "split the model into so many", diag);
    if (s->n_microbatches != o->microbatches && o->replicas > 1)
        return pst_diag_set(diag, PST_E_SCHEDULE_CSV,
                            "%s is for %u microbatches of each of the %u "
                            "replicas, not %u: --microbatches is for all of "
                            "them, set it to %u",
                            path, s->n_microbatches, o->replicas,
                            o->microbatches, s->n_microbatches * o->replicas);
    if (s->n_microbatches != o->microbatches)
        return refuse_numbers(path, s->n_microbatches, "microbatch", "es",
                              o->microbatches, "set --microbatches so", diag);
    for (unsigned k = 0; k < o->stages; k++)
        if (k >= s->n_stages || s->rank_of[k] < 0)
            return pst_diag_set(diag, PST_E_SCHEDULE_CSV,
                                "%s leaves stage %u of %u without a rank", path,
                                k, o->stages);
    if (s->train && !o->train)
        return pst_diag_set(diag, PST_E_SCHEDULE_CSV,
                            "%s has backwards, but nothing is trained", path);
    return PST_OK;
}

static enum pst_status check_place(const struct pst_schedule *s,
                                   const char *path,
                                   const struct pst_schedule_options *o,
                                   struct pst_diag *diag)
{
    int *rank_of = pst_calloc(PST_TAG_PLAN, o->stages, sizeof(*rank_of));
    enum pst_status status;

    if (!rank_of)
        return pst_diag_nomem(diag, o->stages * sizeof(*rank_of));
    status =
        pst_sched_parse_place(o->place, o->stages, o->ranks, rank_of, diag);
    for (unsigned k = 0; k < o->stages && status == PST_OK; k++)
        if (rank_of[k] != s->rank_of[k])
            status = pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                  "--place puts stage %u on rank %d, but %s "
                                  "has it on rank %d: leave --place out",
                                  k, rank_of[k], path, s->rank_of[k]);
    pst_free(rank_of);
    return status;
}

enum pst_status pst_sched_read_csv(const char *path,
                                   const struct pst_schedule_options *options,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag)
{
    struct pst_schedule *s = NULL;
    char *text = NULL;
    size_t size = 0;
    enum pst_status status = pst_file_read(path, MAX_FILE, &text, &size, diag);

    if (status == PST_OK)
        status = pst_schedule_parse(text, size, path, &s, diag);
    pst_free(text);
    if (status == PST_OK)
        status = check_fits(s, path, options, diag);
    if (status == PST_OK && options->place)
        status = check_place(s, path, options, diag);
    if (status != PST_OK) {
        pst_schedule_free(s);
        return status;
    }
    s->train = options->train;
    /* Sets `messages` also if only some ranks have messages: lowering replaces
     * the actions that it adds itself. */
    for (unsigned r = 0; r < s->n_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].n; i++)
            s->messages |= s->ranks[r].at[i].kind != PST_ACT_IDLE &&
                           !pst_action_is_compute(&s->ranks[r].at[i]);
    /* Checks the lists as they are in the file, since later steps reorder
     * actions. */
    status = pst_sched_check_compute(s, diag);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "%s", path);
        pst_schedule_free(s);
        return status;
    }
    if (!options->idle)
        pst_sched_pack(s);
    *ret = s;
    return PST_OK;
}
