// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/settings.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/exec/eval/evaluate.h"

#define NOT_GIVEN "not given"
#define GIVEN     "given --"

/* Maximum bytes of changed options in a checkpoint's options. */
#define MAX_TEXT (PST_CHECKPOINT_OPTIONS / 2)

/* Limits of drop_fewest(): changed options that it chooses from, and subsets
 * of them that it tries. */
#define MAX_LINES   32u
#define MAX_CHOICES 4096u

typedef enum pst_status (*line_fn)(void *ctx, const char *name,
                                   const char *value, struct pst_diag *diag);

/* Calls fn(ctx, NAME, VALUE) for each line "NAME=VALUE". */
static enum pst_status for_each_line(const char *lines, line_fn fn, void *ctx,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && *lines != '\0') {
        const size_t n = strcspn(lines, "\n");
        struct pst_str line = {0};
        char *is;

        pst_str_addn(&line, lines, n);
        if (line.failed)
            return pst_diag_nomem(diag, n);
        is = line.text != NULL ? strchr(line.text, '=') : NULL;
        if (is != NULL) {
            *is = '\0';
            status = fn(ctx, line.text, is + 1, diag);
        }
        pst_str_fini(&line);
        lines += n + (lines[n] == '\n');
    }
    return status;
}

static enum pst_status set_option(void *ctx, const char *name,
                                  const char *value, struct pst_diag *diag)
{
    return pstd_config_set_running(ctx, name, value, diag);
}

/* Appends the text of an option; "not given" if it has none, and for a number
 * of steps that follows from --epochs. */
static void add_text(const struct pstd_config *config,
                     const struct pstd_option *row, struct pst_str *out)
{
    const bool counted = row->at == offsetof(struct pstd_config, steps) &&
                         !isnan(config->epochs) && !PSTD_GIVEN(config, steps);

    if (counted || !pstd_config_text(config, row, out))
        pst_str_add(out, NOT_GIVEN);
}

/* Remembers the text that the option had before its first change. */
static enum pst_status record_given(void *ctx, const char *name,
                                    const char *value, struct pst_diag *diag)
{
    struct pstd_session *s = ctx;
    struct pstd_set_option set = {.row = pstd_option_find(PSTD_OPT_SET, name)};
    struct pst_str text = {0};
    bool ok;

    (void)value;
    for (size_t i = 0; i < s->set.n; i++)
        if (s->set.at[i].row == set.row)
            return PST_OK;
    add_text(&s->config, set.row, &text);
    set.given = pst_arena_strdup(&s->config.arena, pst_str_text(&text));
    ok = !text.failed && set.given != NULL &&
         pst_vec_push(PST_TAG_DAEMON, &s->set, set);
    pst_str_fini(&text);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(set));
}

/* Checks the changed options and converts them to those of the engine. */
static enum pst_status make_options(const struct pstd_session *s,
                                    const struct pstd_config *config,
                                    struct pst_exec_options *ret,
                                    struct pst_diag *diag)
{
    enum pst_status status = pstd_session_check(config, diag);

    if (status == PST_OK)
        status = pstd_eval_check(config, diag);
    if (status == PST_OK && config->steps < s->step)
        return pst_diag_set(
            diag, PST_E_RUN_SET, "steps=%llu: the run has made %llu steps",
            (unsigned long long)config->steps, (unsigned long long)s->step);
    if (status == PST_OK)
        status = pstd_exec_options(config, s->w->ranks / pstd_replicas(config),
                                   true, ret, diag);
    return status;
}

/* True if one of the lines "NAME=VALUE" has that name. */
static bool is_named(const char *lines, const char *name)
{
    const size_t n = strlen(name);

    while (*lines != '\0') {
        if (strncmp(lines, name, n) == 0 && lines[n] == '=')
            return true;
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return false;
}

/* Refuses a change that a checkpoint cannot record for want of space: two lines
 * for each option that was changed, as pstd_settings_add writes them. */
static enum pst_status check_size(const struct pstd_session *s,
                                  const struct pstd_config *now,
                                  const char *lines, struct pst_diag *diag)
{
    size_t n, size = 0;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        const char *given = NULL;
        struct pst_str text = {0};

        for (size_t k = 0; k < s->set.n; k++)
            if (s->set.at[k].row == &rows[i])
                given = s->set.at[k].given;
        if (given == NULL && !is_named(lines, rows[i].name))
            continue;
        add_text(now, &rows[i], &text);
        if (given == NULL)
            add_text(&s->config, &rows[i], &text);
        size += text.len + (given != NULL ? strlen(given) : 0) +
                2 * strlen(rows[i].name) + strlen("--=\n" GIVEN "=\n");
        pst_str_fini(&text);
    }
    if (size <= MAX_TEXT)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_SET,
                        "a checkpoint records at most %d bytes of options that "
                        "were set, with this change there would be %zu",
                        MAX_TEXT, size);
}

/* Refuses a ramp with a number of microbatches that the engine is not prepared
 * for. */
static enum pst_status check_ramp(const struct pstd_session *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    unsigned counts[PSTD_RAMP_ROWS];
    const unsigned n = pstd_ramp_counts(&config->microbatches, counts);

    for (unsigned i = 0; i < n; i++) {
        unsigned k = 0;

        while (k < s->n_counts && s->counts[k] != counts[i])
            k++;
        if (k == s->n_counts)
            return pst_diag_set(diag, PST_E_RUN_RAMP,
                                "microbatches %u is not among those that the "
                                "run was started with, for which it has "
                                "schedules and memory",
                                counts[i]);
    }
    return PST_OK;
}

/* Tries the change on a copy of the options. */
static enum pst_status try_change(const struct pstd_session *s,
                                  const char *lines, bool retune,
                                  struct pst_diag *diag)
{
    struct pst_exec_options options;
    struct pstd_config config;
    enum pst_status status = pstd_config_copy(&config, &s->config, diag);

    if (status != PST_OK)
        return status;
    status = for_each_line(lines, set_option, &config, diag);
    if (status == PST_OK)
        status = check_ramp(s, &config, diag);
    if (status == PST_OK && retune && !(s->passes.each > 0) &&
        (config.eval_every.epochs > 0 || config.checkpoint_every.epochs > 0))
        status = pst_diag_set(diag, PST_E_RUN_SET,
                              "an interval in epochs: this run does not count "
                              "them, since none of the options that it was "
                              "started with is in epochs");
    if (status == PST_OK && retune && s->epoch_rows > 0 &&
        is_named(lines, "microbatches"))
        status = pst_diag_set(diag, PST_E_RUN_SET,
                              "microbatches: the steps of --epochs were "
                              "counted with those that the run was started "
                              "with");
    if (status == PST_OK)
        status = check_size(s, &config, lines, diag);
    if (status == PST_OK)
        status = make_options(s, &config, &options, diag);
    if (status == PST_OK && retune)
        status = pst_engine_retune(s->w->engine, &options, false, diag);
    pstd_config_fini(&config);
    return status;
}

/* Makes the change, which has been tried: it fails only if memory is out. */
static enum pst_status apply_change(struct pstd_session *s, const char *lines,
                                    bool retune, struct pst_diag *diag)
{
    struct pst_exec_options options;
    enum pst_status status = for_each_line(lines, record_given, s, diag);

    if (status == PST_OK)
        status = for_each_line(lines, set_option, &s->config, diag);
    if (status == PST_OK)
        status = make_options(s, &s->config, &options, diag);
    if (status != PST_OK)
        return status;
    s->options.optim = options.optim;
    s->options.groups = options.groups;
    s->options.no_decay = options.no_decay;
    return retune ? pst_engine_retune(s->w->engine, &s->options, true, diag)
                  : PST_OK;
}

/* Reports the change by an event, with at most 800 bytes of its lines. */
static void emit_change(struct pstd_session *s, enum pstd_event event,
                        const char *lines, uint64_t step,
                        const struct pst_diag *refused)
{
    struct pst_str text = {0};
    struct pstd_note note;

    pst_str_addf(&text, "%.800s%s", lines, strlen(lines) > 800 ? "..." : "");
    for (size_t i = 0; i < text.len && !text.failed; i++)
        if (text.text[i] == '\n')
            text.text[i] = i + 1 < text.len ? ' ' : '\0';
    pstd_note_init(&note, event);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)step);
    if (refused == NULL)
        pstd_note_int(&note, "steps", (int64_t)s->config.steps);
    pstd_note_text(&note, "options", pst_str_text(&text));
    if (refused != NULL) {
        pstd_note_text(&note, "status", pst_status_name(refused->status));
        pstd_note_error(&note, refused);
    }
    pstd_mailbox_post(s->w->mailbox, &note, true);
    pst_str_fini(&text);
}

enum pst_status pstd_session_set(struct pstd_session *s, const char *lines,
                                 struct pst_diag *diag)
{
    enum pst_status status =
        pstd_agree_status(s->w, try_change(s, lines, true, diag), diag);

    if (status == PST_ERR_PEER)
        return status;
    if (status != PST_OK) {
        emit_change(s, PSTD_EVENT_SET_REFUSED, lines, s->step, diag);
        return PST_OK;
    }
    status = pstd_agree_status(s->w, apply_change(s, lines, true, diag), diag);
    if (status == PST_OK)
        status = pstd_session_record_key(s, diag);
    if (status != PST_OK)
        return status;
    if (s->w->rank == 0)
        pstd_course_change(s);
    /* The newest good checkpoint lacks the new options, but a rollback to it
     * stays possible. */
    if (s->good_changes == s->changes)
        s->good_changes++;
    s->changes++;
    emit_change(s, PSTD_EVENT_SET, lines, s->step, NULL);
    return PST_OK;
}

/* --- checkpoints ---------------------------------------------------------- */

void pstd_settings_add(const struct pstd_session *s, struct pst_str *course)
{
    for (size_t i = 0; i < s->set.n; i++) {
        const struct pstd_set_option *set = &s->set.at[i];
        struct pst_str text = {0};

        add_text(&s->config, set->row, &text);
        pst_str_addf(course, "--%s=%s\n" GIVEN "%s=%s\n", set->row->name,
                     pst_str_text(&text), set->row->name, set->given);
        course->failed |= text.failed;
        pst_str_fini(&text);
    }
}

bool pstd_settings_has_changes(const char *course)
{
    while (*course != '\0' && !pst_has_prefix(course, GIVEN)) {
        course += strcspn(course, "\n");
        course += *course == '\n';
    }
    return *course != '\0';
}

struct restored {
    struct pstd_session *s;
    const char *course;
    struct pst_str lines; /* "NAME=VALUE\n" for each changed option */
    /* those lines that are valid with the options of this run */
    struct pst_str kept;
};

/* Finds the value in the line "--NAME=VALUE"; NULL: there is none. *ret_n: its
 * length. */
static const char *find_value(const char *course, const char *name,
                              size_t *ret_n)
{
    const size_t n = strlen(name);

    while (*course != '\0') {
        const size_t line = strcspn(course, "\n");

        if (line > n + 2 && strncmp(course, "--", 2) == 0 &&
            strncmp(course + 2, name, n) == 0 && course[n + 2] == '=') {
            *ret_n = line - n - 3;
            return course + n + 3;
        }
        course += line + (course[line] == '\n');
    }
    return NULL;
}

/* Takes a line "given --NAME=VALUE" of a checkpoint: if this run was started
 * with the same text, it continues with the changed one. */
static enum pst_status restore_line(void *ctx, const char *name,
                                    const char *value, struct pst_diag *diag)
{
    struct restored *r = ctx;
    const struct pstd_option *row;
    struct pst_str own = {0};
    const char *changed;
    size_t n = 0, same;

    (void)diag;
    if (!pst_has_prefix(name, GIVEN))
        return PST_OK;
    name += strlen(GIVEN);
    row = pstd_option_find(PSTD_OPT_SET, name);
    changed = find_value(r->course, name, &n);
    if (row == NULL || changed == NULL)
        return PST_OK; /* another version of the program wrote the checkpoint */
    add_text(&r->s->config, row, &own);
    /* The changed text of rules begins with the given ones, to which setting
     * the option adds. */
    same = row->type == PSTD_RULES && strcmp(value, NOT_GIVEN) != 0
               ? PST_MIN(n, own.len + 1)
               : 0;
    if (!own.failed && strcmp(pst_str_text(&own), value) == 0 && n > same)
        pst_str_addf(&r->lines, "%s=%.*s\n", name, (int)(n - same),
                     changed + same);
    r->lines.failed |= own.failed;
    pst_str_fini(&own);
    return PST_OK;
}

/* Adds a line to `kept` if it is valid with the options of this run, else
 * reports it: for instance, the numbers of a schedule are useless in a resume
 * with another schedule. */
static enum pst_status keep_if_valid(void *ctx, const char *name,
                                     const char *value, struct pst_diag *diag)
{
    struct restored *r = ctx;
    const size_t before = r->kept.len;
    struct pstd_note note;
    struct pst_diag why;

    pst_str_addf(&r->kept, "%s=%s\n", name, value);
    if (r->kept.failed)
        return pst_diag_nomem(diag, r->kept.len);
    if (try_change(r->s, r->kept.text, false, &why) == PST_OK)
        return PST_OK;
    r->kept.len = before;
    r->kept.text[before] = '\0';
    if (r->s->w->rank != 0)
        return PST_OK;
    (void)pst_diag_pass(&why, &why,
                        "%s=%.100s, which was set in the run of the "
                        "checkpoint, is left out: %s",
                        name, value, why.text);
    pstd_note_init(&note, PSTD_EVENT_DOUBT);
    pstd_note_int(&note, "run", (int64_t)r->s->result->run);
    pstd_note_text(&note, "text", why.text);
    pstd_mailbox_post(r->s->w->mailbox, &note, true);
    return PST_OK;
}

/* Appends each line whose number, from 0, is a set bit of `bits`. */
static void add_lines(const char *lines, uint64_t bits, struct pst_str *out)
{
    for (unsigned i = 0; *lines != '\0'; i++) {
        const size_t n = strcspn(lines, "\n") + 1;

        if (bits >> i & 1)
            pst_str_addn(out, lines, n);
        lines += n;
    }
}

/* Returns the next larger number with as many bits set. */
static uint64_t next_choice(uint64_t bits)
{
    const uint64_t low = bits & -bits, carry = bits + low;

    return carry | (((bits ^ carry) / low) >> 2);
}

/* Finds the smallest set of lines to leave out, so that the remaining lines are
 * valid together and with the options of this run: some options need each
 * other, so that none of them can be tried alone. Appends the remaining lines
 * to r->kept, the others to `dropped` (all lines if there are too many
 * subsets). */
static enum pst_status drop_fewest(struct restored *r, struct pst_str *dropped,
                                   struct pst_diag *diag)
{
    const char *lines = r->lines.text;
    unsigned n = 0, tries = 0;
    struct pst_diag ignored;
    uint64_t all;

    for (const char *p = lines; *p != '\0'; p++)
        n += *p == '\n';
    n = PST_MIN(n, MAX_LINES);
    all = (UINT64_C(1) << n) - 1;
    for (unsigned k = 1; k < n; k++)
        for (uint64_t bits = (UINT64_C(1) << k) - 1;
             bits <= all && tries < MAX_CHOICES; bits = next_choice(bits)) {
            tries++;
            pst_str_fini(&r->kept);
            add_lines(lines, ~bits, &r->kept);
            if (r->kept.failed)
                return pst_diag_nomem(diag, r->lines.len);
            if (try_change(r->s, r->kept.text, false, &ignored) != PST_OK)
                continue;
            add_lines(lines, bits, dropped);
            return dropped->failed ? pst_diag_nomem(diag, r->lines.len)
                                   : PST_OK;
        }
    pst_str_fini(&r->kept);
    pst_str_add(dropped, lines);
    return dropped->failed ? pst_diag_nomem(diag, r->lines.len) : PST_OK;
}

enum pst_status pstd_settings_restore(struct pstd_session *s,
                                      const char *course, uint64_t step,
                                      struct pst_diag *diag)
{
    struct restored r = {.s = s, .course = course};
    struct pst_str dropped = {0};
    struct pst_diag ignored;
    enum pst_status status = for_each_line(course, restore_line, &r, diag);

    if (status == PST_OK && r.lines.failed)
        status = pst_diag_nomem(diag, r.lines.len);
    if (status == PST_OK && r.lines.len > 0) {
        if (try_change(s, r.lines.text, false, &ignored) == PST_OK)
            pst_str_add(&r.kept, r.lines.text);
        else
            status = drop_fewest(&r, &dropped, diag);
        if (status == PST_OK)
            status =
                for_each_line(pst_str_text(&dropped), keep_if_valid, &r, diag);
    }
    /* An engine kept from an earlier run is not changed here: the engine of
     * this run is made later, with the changed options. */
    if (status == PST_OK && r.kept.len > 0)
        status = apply_change(s, r.kept.text, false, diag);
    if (status == PST_OK && r.kept.len > 0 && s->w->rank == 0)
        emit_change(s, PSTD_EVENT_SET_RESTORED, r.kept.text, step, NULL);
    pst_str_fini(&r.lines);
    pst_str_fini(&r.kept);
    pst_str_fini(&dropped);
    return status;
}
