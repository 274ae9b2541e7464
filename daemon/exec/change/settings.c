// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/settings.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/exec/eval/evaluate.h"

#define NOT_GIVEN "not given"
#define GIVEN     "given --"

#define MAX_TEXT 1500 /* bytes of an option that a checkpoint records whole */

typedef enum pst_status (*line_fn)(void *ctx, const char *name,
                                   const char *value, struct pst_diag *diag);

/* Calls fn(ctx, NAME, VALUE) for each line "NAME=VALUE". */
static enum pst_status each_line(const char *lines, line_fn fn, void *ctx,
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

static enum pst_status set_one(void *ctx, const char *name, const char *value,
                               struct pst_diag *diag)
{
    struct pstd_config *config = ctx;

    if (pstd_option_named(PSTD_OPT_SET, name) == NULL &&
        pstd_option_named(PSTD_OPT_TRAIN, name) != NULL)
        return pst_diag_set(diag, PST_E_RUN_SET,
                            "--%.60s cannot change while a run goes on: stop "
                            "it, and resume it with the new value",
                            name);
    return pstd_config_set(config, PSTD_OPT_SET, name, value, diag);
}

/* Returns the text of an option; "not given" if it has none. */
static void text_of(const struct pstd_config *config,
                    const struct pstd_option *row, struct pst_str *out)
{
    if (!pstd_config_text(config, row, out))
        pst_str_add(out, NOT_GIVEN);
}

/* Remembers the text that the option had before its first change. */
static enum pst_status remember(void *ctx, const char *name, const char *value,
                                struct pst_diag *diag)
{
    struct pstd_session *s = ctx;
    struct pstd_set_option set = {.row = pstd_option_named(PSTD_OPT_SET, name)};
    struct pst_str text = {0};
    bool ok;

    (void)value;
    for (size_t i = 0; i < s->set.n; i++)
        if (s->set.at[i].row == set.row)
            return PST_OK;
    text_of(&s->config, set.row, &text);
    set.given = pst_arena_strdup(&s->config.arena, pst_str_text(&text));
    ok = !text.failed && set.given != NULL &&
         pst_vec_push(PST_TAG_DAEMON, &s->set, set);
    pst_str_fini(&text);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(set));
}

/* Checks the changed options and makes those of the engine. */
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

static enum pst_status check_text(const char *name, const char *text,
                                  struct pst_diag *diag)
{
    if (text == NULL || strlen(text) <= MAX_TEXT)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_SET,
                        "--%s has more than %d bytes with this change, too "
                        "many for a checkpoint to record them",
                        name, MAX_TEXT);
}

/* Tries the change on a copy of the options. */
static enum pst_status try(const struct pstd_session *s, const char *lines,
                           struct pst_diag *diag)
{
    struct pst_exec_options options;
    struct pstd_config config;
    enum pst_status status = pstd_config_copy(&config, &s->config, diag);

    if (status != PST_OK)
        return status;
    status = each_line(lines, set_one, &config, diag);
    if (status == PST_OK)
        status = check_text("group", config.group, diag);
    if (status == PST_OK)
        status = check_text("no-decay", config.no_decay, diag);
    if (status == PST_OK)
        status = make_options(s, &config, &options, diag);
    if (status == PST_OK && s->w->engine != NULL)
        status = pst_engine_retune(s->w->engine, &options, false, diag);
    pstd_config_fini(&config);
    return status;
}

/* Makes the change, which has been tried: it fails only if memory is out. */
static enum pst_status apply(struct pstd_session *s, const char *lines,
                             struct pst_diag *diag)
{
    struct pst_exec_options options;
    enum pst_status status = each_line(lines, remember, s, diag);

    if (status == PST_OK)
        status = each_line(lines, set_one, &s->config, diag);
    if (status == PST_OK)
        status = make_options(s, &s->config, &options, diag);
    if (status != PST_OK)
        return status;
    s->options.optim = options.optim;
    s->options.groups = options.groups;
    s->options.no_decay = options.no_decay;
    return s->w->engine != NULL
               ? pst_engine_retune(s->w->engine, &s->options, true, diag)
               : PST_OK;
}

static void emit(struct pstd_session *s, const char *lines,
                 const struct pst_diag *refused)
{
    struct pst_str text = {0};
    struct pstd_note note;

    pst_str_add(&text, lines);
    for (size_t i = 0; i < text.len && !text.failed; i++)
        if (text.text[i] == '\n')
            text.text[i] = i + 1 < text.len ? ' ' : '\0';
    pstd_note_init(&note,
                   refused != NULL ? PSTD_EVENT_SET_REFUSED : PSTD_EVENT_SET);
    pstd_note_int(&note, "run", (int64_t)s->result->run);
    pstd_note_int(&note, "step", (int64_t)s->step);
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
    enum pst_status status = pstd_agree(s->w, try(s, lines, diag), diag);

    if (status == PST_ERR_PEER)
        return status;
    if (status != PST_OK) {
        emit(s, lines, diag);
        return PST_OK;
    }
    status = pstd_agree(s->w, apply(s, lines, diag), diag);
    if (status == PST_OK)
        status = pstd_session_rekey(s, diag);
    if (status != PST_OK)
        return status;
    if (s->w->rank == 0)
        pstd_course_change(s);
    s->saved_changes = UINT64_MAX; /* no checkpoint has the new options */
    emit(s, lines, NULL);
    return PST_OK;
}

/* --- checkpoints ---------------------------------------------------------- */

void pstd_settings_add(const struct pstd_session *s, struct pst_str *course)
{
    for (size_t i = 0; i < s->set.n; i++) {
        const struct pstd_set_option *set = &s->set.at[i];
        struct pst_str text = {0};

        text_of(&s->config, set->row, &text);
        pst_str_addf(course, "--%s=%s\n" GIVEN "%s=%s\n", set->row->name,
                     pst_str_text(&text), set->row->name, set->given);
        course->failed |= text.failed;
        pst_str_fini(&text);
    }
}

struct restored {
    struct pstd_session *s;
    const char *course;
    struct pst_str lines;
};

/* Finds the value in the line "--NAME=VALUE"; NULL: there is none. *ret_n: its
 * length. */
static const char *value_in(const char *course, const char *name, size_t *ret_n)
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
static enum pst_status take_given(void *ctx, const char *name,
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
    row = pstd_option_named(PSTD_OPT_SET, name);
    changed = value_in(r->course, name, &n);
    if (row == NULL || changed == NULL)
        return PST_OK; /* another version of the program wrote the checkpoint */
    text_of(&r->s->config, row, &own);
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

enum pst_status pstd_settings_restore(struct pstd_session *s,
                                      const char *course, struct pst_diag *diag)
{
    struct restored r = {.s = s, .course = course};
    enum pst_status status = each_line(course, take_given, &r, diag);

    if (status == PST_OK && r.lines.failed)
        status = pst_diag_nomem(diag, r.lines.len);
    if (status == PST_OK && r.lines.len > 0)
        status = apply(s, r.lines.text, diag);
    if (status == PST_OK && r.lines.len > 0 && s->w->rank == 0)
        emit(s, r.lines.text, NULL);
    pst_str_fini(&r.lines);
    return status;
}
