// SPDX-License-Identifier: Apache-2.0
#include "stages/base/fold/fold.h"

#include "stages/base/checked.h"
#include "stages/base/macros.h"

#include <stdio.h>
#include <string.h>

#define TAG        PST_TAG_PLAN
#define MAX_DIGITS 18
#define MAX_NUMBER INT64_C(999999999999999999)
/* Number of earlier lines, equal except for their numbers, that are tried as a
 * match for one line. */
#define TRIES 24
/* Maximum encoded bytes of a run without its deltas. */
#define RUN_BYTES 20

/* --- pieces of a line ----------------------------------------------------- */

/* A text and the number after it, if there is one. */
struct piece {
    const char *text;
    size_t len;
    bool numbered, hidden; /* hidden: the suffix is empty for 0, else "_N" */
    int64_t value;
};

/* Position in a line. After the '%' of a name: the end of its text without the
 * suffix "_N", the end of the name, and N (0 without a suffix). stem is NULL
 * outside of a name. */
struct cursor {
    const char *at, *end;
    const char *stem, *after;
    int64_t suffix;
};

/* True for ASCII digits; isdigit is a function call and depends on the
 * locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_of_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '_';
}

/* Returns the count of digits from p on, and their value; 0 if the digits are
 * not a number (fold.h). */
static size_t read_digits(const char *p, const char *end, int64_t *ret)
{
    size_t n = 0;

    *ret = 0;
    while (p + n < end && is_digit(p[n])) {
        if (n < MAX_DIGITS)
            *ret = *ret * 10 + (p[n] - '0');
        n++;
    }
    return n > MAX_DIGITS || (n > 1 && *p == '0') ? 0 : n;
}

static void enter_name(struct cursor *c, const char *p)
{
    const char *end = p, *d;

    while (end < c->end && is_of_name(*end))
        end++;
    for (d = end; d > p && is_digit(d[-1]);)
        d--;
    c->stem = c->after = end;
    c->suffix = 0;
    if (d == end || *d == '0' || d < p + 2 || d[-1] != '_' ||
        read_digits(d, end, &c->suffix) == 0) {
        c->suffix = 0;
        return;
    }
    c->stem = d - 1;
}

/* Reads the text up to the next number, and the number. Returns false at the
 * end of the line. */
static bool next_piece(struct cursor *c, struct piece *ret)
{
    const char *p = c->at;

    *ret = (struct piece){.text = p};
    if (p == c->end && c->stem != p)
        return false;
    for (; p < c->end && p != c->stem; p++) {
        if (!is_digit(*p)) {
            if (*p == '%' && c->stem == NULL)
                enter_name(c, p + 1);
        } else {
            const size_t n = read_digits(p, c->end, &ret->value);

            if (n > 0) {
                ret->len = (size_t)(p - ret->text);
                ret->numbered = true;
                c->at = p + n;
                return true;
            }
            while (p + 1 < c->end && is_digit(p[1]))
                p++;
        }
    }
    ret->len = (size_t)(p - ret->text);
    ret->value = 0;
    c->at = p;
    if (p != c->stem)
        return true;
    ret->numbered = ret->hidden = true;
    ret->value = c->suffix;
    c->at = c->after;
    c->stem = NULL;
    return true;
}

/* --- folding -------------------------------------------------------------- */

struct line {
    const char *text;
    size_t len;    /* without the newline */
    uint64_t hash; /* hash of the text without numbers */
    size_t first;  /* index of its first number in `numbers` */
    uint32_t n;
    uint32_t before;        /* previous line with the same hash, + 1; 0: none */
    uint32_t period, count; /* the run that begins here; count 0: none */
};

struct folder {
    struct PST_VEC(struct line) lines;
    struct PST_VEC(int64_t) numbers;
    struct pst_folded *ret;
    uint32_t *table; /* by hash: last line with that hash, + 1; 0: none */
    size_t mask;
};

static bool take_line(struct folder *f, const char *text, size_t len)
{
    struct line line = {.text = text, .len = len, .first = f->numbers.n};
    struct cursor c = {.at = text, .end = text + len};
    struct piece piece;

    while (next_piece(&c, &piece)) {
        const unsigned kind = (unsigned)piece.numbered + piece.hidden;

        line.hash = pst_hash(piece.text, piece.len, 3 * line.hash + kind);
        if (!piece.numbered)
            continue;
        if (!pst_vec_push(TAG, &f->numbers, piece.value))
            return false;
    }
    line.n = (uint32_t)(f->numbers.n - line.first);
    return pst_vec_push(TAG, &f->lines, line);
}

static bool take_lines(struct folder *f, const char *text, size_t len)
{
    const char *end = text + len;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));

        if (stop == NULL || !take_line(f, text, (size_t)(stop - text)))
            return false;
        text = stop + 1;
    }
    for (f->mask = 1; f->mask < 2 * f->lines.n;)
        f->mask *= 2;
    f->table = pst_calloc(TAG, f->mask--, sizeof(*f->table));
    return f->table != NULL && f->lines.n < UINT32_MAX;
}

static void index_line(struct folder *f, size_t i)
{
    struct line *lines = f->lines.at;
    size_t at = lines[i].hash & f->mask;

    while (f->table[at] != 0 && lines[f->table[at] - 1].hash != lines[i].hash)
        at = (at + 1) & f->mask;
    lines[i].before = f->table[at];
    f->table[at] = (uint32_t)i + 1;
}

static uint32_t find_last_equal(const struct folder *f, size_t i)
{
    const struct line *lines = f->lines.at;
    size_t at = lines[i].hash & f->mask;

    while (f->table[at] != 0 && lines[f->table[at] - 1].hash != lines[i].hash)
        at = (at + 1) & f->mask;
    return f->table[at];
}

/* Returns number k of line i minus number k of the line `period` earlier. */
static int64_t growth_of(const struct folder *f, size_t i, size_t period,
                         uint32_t k)
{
    const struct line *lines = f->lines.at;

    return f->numbers.at[lines[i].first + k] -
           f->numbers.at[lines[i - period].first + k];
}

/* Counts the lines from i on that repeat the lines `period` earlier: the text
 * without numbers is the same, and the numbers grow by the same amounts in each
 * period. */
static size_t run_length(const struct folder *f, size_t i, size_t period)
{
    const struct line *lines = f->lines.at;
    size_t n = 0;

    for (; i + n < f->lines.n; n++) {
        const struct line *a = &lines[i + n - period], *b = &lines[i + n];

        if (a->hash != b->hash || a->n != b->n)
            break;
        for (uint32_t k = 0; n >= period && k < a->n; k++)
            if (growth_of(f, i + n, period, k) !=
                growth_of(f, i + n % period, period, k))
                return n;
    }
    return n;
}

/* Returns the estimated bytes that a run saves; negative if it costs bytes. */
static int64_t run_saves(const struct folder *f, size_t i, size_t period,
                         size_t count)
{
    int64_t ret = -RUN_BYTES;

    for (size_t k = 0; k < count; k++)
        ret += (int64_t)f->lines.at[i + k].len + 1;
    for (size_t k = 0; k < PST_MIN(count, period); k++)
        ret -= 2 * f->lines.at[i + k].n;
    return ret;
}

static bool put_run(struct folder *f, size_t i, size_t period, size_t count)
{
    struct pst_folded *ret = f->ret;
    struct pst_fold_run run = {.line = (uint32_t)i,
                               .period = (uint32_t)period,
                               .count = (uint32_t)count,
                               .first = ret->deltas.n};

    for (size_t k = 0; k < PST_MIN(count, period); k++)
        for (uint32_t n = 0; n < f->lines.at[i + k].n; n++)
            if (!pst_vec_push(TAG, &ret->deltas,
                              growth_of(f, i + k, period, n)))
                return false;
    while (ret->deltas.n > run.first && ret->deltas.at[ret->deltas.n - 1] == 0)
        ret->deltas.n--;
    run.n_deltas = ret->deltas.n - run.first;
    return pst_vec_push(TAG, &ret->runs, run);
}

/* Finds the run from i to `end` that saves the most, among those that repeat
 * their deltas at least `repeats` times. */
static void find_run(struct folder *f, size_t i, size_t end, size_t repeats)
{
    struct line *line = &f->lines.at[i];
    uint32_t alike = find_last_equal(f, i);
    int64_t best = 0;

    for (unsigned t = 0; alike != 0 && t < TRIES; t++) {
        const size_t period = i + 1 - alike;
        const size_t n = PST_MIN(run_length(f, i, period), end - i);
        const int64_t saves =
            n > repeats * period ? run_saves(f, i, period, n) : 0;

        if (saves > best) {
            best = saves;
            line->period = (uint32_t)period;
            line->count = (uint32_t)n;
        }
        alike = f->lines.at[alike - 1].before;
    }
}

/* Finds runs that repeat at least `repeats` times. The first pass takes runs
 * that repeat several times, whose deltas cost almost nothing. The second pass
 * takes the remaining lines, which may still resemble anything earlier: the
 * first layer of one stage resembles that of another. */
static void find_runs(struct folder *f, size_t repeats)
{
    const struct line *lines = f->lines.at;
    size_t i = 0, end = 0;

    memset(f->table, 0, (f->mask + 1) * sizeof(*f->table));
    while (i < f->lines.n) {
        size_t n;

        for (end = PST_MAX(end, i); end < f->lines.n && lines[end].count == 0;)
            end++;
        if (i < end)
            find_run(f, i, end, repeats);
        for (n = PST_MAX(lines[i].count, (uint32_t)1); n > 0; n--)
            index_line(f, i++);
    }
}

static bool fold_lines(struct folder *f)
{
    const struct line *lines = f->lines.at;

    find_runs(f, 1);
    find_runs(f, 0);
    for (size_t i = 0; i < f->lines.n;) {
        if (lines[i].count > 0) {
            if (!put_run(f, i, lines[i].period, lines[i].count))
                return false;
            i += lines[i].count;
        } else {
            pst_str_addn(&f->ret->lines, lines[i].text, lines[i].len + 1);
            i++;
        }
    }
    return !f->ret->lines.failed;
}

enum pst_status pst_fold_lines(const char *text, size_t len,
                               struct pst_folded *ret, struct pst_diag *diag)
{
    struct folder f = {.ret = ret};
    const bool ok = take_lines(&f, text, len) && fold_lines(&f);

    pst_vec_fini(&f.lines);
    pst_vec_fini(&f.numbers);
    pst_free(f.table);
    return ok ? PST_OK : pst_diag_nomem(diag, len);
}

/* --- unfolding ------------------------------------------------------------ */

struct unfolder {
    const struct pst_folded *folded;
    size_t max;
    struct pst_str *ret;
    struct PST_VEC(size_t) starts; /* offset of each line in ret */
    struct PST_VEC(
        size_t) deltas; /* index of the first delta of each line of the run */
    struct pst_str line;
    struct pst_diag *diag;
};

static enum pst_status report_misfit(const struct unfolder *u, const char *what)
{
    return pst_diag_set(u->diag, PST_E_RECORD_DAMAGED, "folded lines: %s",
                        what);
}

static enum pst_status put_line(struct unfolder *u, const char *text,
                                size_t len)
{
    /* The offset of each line takes memory, too. */
    const size_t taken = u->ret->len + u->starts.n * sizeof(u->starts.at[0]);

    if (len + sizeof(u->starts.at[0]) > u->max - taken)
        return report_misfit(u, "they are too many");
    if (!pst_vec_push(TAG, &u->starts, u->ret->len))
        return pst_diag_nomem(u->diag, len);
    pst_str_addn(u->ret, text, len);
    return u->ret->failed ? pst_diag_nomem(u->diag, len) : PST_OK;
}

/* Appends a number; hidden: as the suffix "_N", nothing for 0. Formats by hand,
 * since printf would take most of the time. */
static void put_number(struct pst_str *out, int64_t value, bool hidden)
{
    char text[MAX_DIGITS + 2];
    size_t at = sizeof(text);

    if (hidden && value == 0)
        return;
    do
        text[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    if (hidden)
        text[--at] = '_';
    pst_str_addn(out, text + at, sizeof(text) - at);
}

/* Appends the line with the deltas from `delta` on added to its numbers; *ret_n
 * is the count of its numbers. */
static enum pst_status grow_line(struct unfolder *u, size_t like,
                                 const struct pst_fold_run *run, size_t delta,
                                 size_t *ret_n)
{
    const char *text = u->ret->text + u->starts.at[like];
    const char *end = memchr(text, '\n', u->ret->len - u->starts.at[like]);
    struct cursor c = {.at = text, .end = end};
    struct piece piece;

    *ret_n = 0;
    u->line.len = 0;
    while (next_piece(&c, &piece)) {
        const size_t k = delta + *ret_n;
        int64_t value = piece.value;

        pst_str_addn(&u->line, piece.text, piece.len);
        if (!piece.numbered)
            break; /* the end of the line */
        if (k < run->n_deltas &&
            __builtin_add_overflow(value, u->folded->deltas.at[run->first + k],
                                   &value))
            return report_misfit(u, "a number is too large");
        if (value < 0 || value > MAX_NUMBER)
            return report_misfit(u, "a number is out of range");
        put_number(&u->line, value, piece.hidden);
        (*ret_n)++;
    }
    pst_str_add(&u->line, "\n");
    return u->line.failed ? pst_diag_nomem(u->diag, u->line.len) : PST_OK;
}

static enum pst_status put_run_lines(struct unfolder *u,
                                     const struct pst_fold_run *run)
{
    size_t delta = 0;

    if (run->period == 0 || run->period > u->starts.n || run->count == 0)
        return report_misfit(u, "a repetition of no lines");
    u->deltas.n = 0;
    for (size_t k = 0; k < run->count; k++) {
        const size_t like = u->starts.n - run->period;
        enum pst_status status;
        size_t n;

        if (k < run->period && !pst_vec_push(TAG, &u->deltas, delta))
            return pst_diag_nomem(u->diag, run->period);
        status = grow_line(u, like, run, u->deltas.at[k % run->period], &n);
        if (status == PST_OK)
            status = put_line(u, u->line.text, u->line.len);
        if (status != PST_OK)
            return status;
        delta += k < run->period ? n : 0;
    }
    return run->n_deltas > delta
               ? report_misfit(u, "more numbers than lines have")
               : PST_OK;
}

static enum pst_status unfold_lines(struct unfolder *u)
{
    const struct pst_folded *folded = u->folded;
    const char *at = pst_str_text(&folded->lines);
    const char *end = at + folded->lines.len;
    enum pst_status status = PST_OK;
    size_t run = 0;

    while (status == PST_OK && (at < end || run < folded->runs.n)) {
        const char *stop;

        if (run < folded->runs.n && folded->runs.at[run].line == u->starts.n) {
            status = put_run_lines(u, &folded->runs.at[run++]);
            continue;
        }
        stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (stop == NULL)
            return report_misfit(u, "they end too early");
        status = put_line(u, at, (size_t)(stop + 1 - at));
        at = stop + 1;
    }
    return status;
}

enum pst_status pst_unfold_lines(const struct pst_folded *folded, size_t max,
                                 struct pst_str *ret, struct pst_diag *diag)
{
    struct unfolder u = {
        .folded = folded, .max = max, .ret = ret, .diag = diag};
    const enum pst_status status = unfold_lines(&u);

    pst_vec_fini(&u.starts);
    pst_vec_fini(&u.deltas);
    pst_str_fini(&u.line);
    return status;
}
