// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of a session. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/setting.h"
#include "lib/object.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

#define TAG PST_TAG_CLIENT

static void release_folder(penstock_session *s)
{
    pst_checkpoint_release(s->owner);
    pst_free(s->folder);
    s->owner = NULL;
    s->folder = NULL;
}

void pstl_checkpoint_fini(penstock_session *s)
{
    release_folder(s);
    for (size_t i = 0; i < s->seen.n; i++)
        pst_free(s->seen.at[i].path);
    pst_vec_fini(&s->seen);
}

/* Records that the session knows the folder's checkpoints up to a step. Rank
 * 0. */
static enum pst_status record_seen(penstock_session *s, const char *folder,
                                   uint64_t step, struct pst_diag *diag)
{
    struct pstl_seen_folder seen = {.newest = step};

    for (size_t i = 0; i < s->seen.n; i++)
        if (pst_path_is_same(s->seen.at[i].path, folder)) {
            s->seen.at[i].newest = PST_MAX(s->seen.at[i].newest, step);
            return PST_OK;
        }
    seen.path = pst_strdup(TAG, folder);
    if (seen.path != NULL && pst_vec_push(TAG, &s->seen, seen))
        return PST_OK;
    pst_free(seen.path);
    return pst_diag_nomem(diag, strlen(folder));
}

/* Returns the latest step that the session knows in the folder; 0: none. */
static uint64_t find_seen(const penstock_session *s, const char *folder)
{
    for (size_t i = 0; i < s->seen.n; i++)
        if (pst_path_is_same(s->seen.at[i].path, folder))
            return s->seen.at[i].newest;
    return 0;
}

/* Takes ownership of the folder for this session. Rank 0. */
static enum pst_status claim_folder(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = s->model->opened.plan;
    struct pst_checkpoint_claim claim = {.dir = folder,
                                         .model_digest = plan->model_digest,
                                         .identity = plan->identity,
                                         .run = s->run,
                                         .make = true};
    struct pst_checkpoint_former former = {0};
    struct pst_checkpoint_run whose = {0};
    enum pst_status status;

    release_folder(s);
    if (s->run[0] == '\0')
        pst_checkpoint_name_run(s->run);
    status = pst_checkpoint_read_run(folder, &whose, diag);
    if (status == PST_OK) {
        claim.resume = strcmp(whose.name, s->run) == 0;
        claim.fallback = claim.resume ? whose.fallback : NULL;
        status = pst_checkpoint_acquire(&claim, &s->owner, &former, diag);
        if (status != PST_OK && diag->error == PST_E_CHECKPOINT_OTHER_RUN)
            status =
                pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                             "the folder %.500s has checkpoints of another "
                             "run: go on from the newest one with "
                             "penstock_load, or save to another folder",
                             folder);
    }
    pst_free(whose.fallback);
    if (status != PST_OK)
        return status;
    s->folder = pst_strdup(TAG, folder);
    if (s->folder == NULL)
        return pst_diag_nomem(diag, strlen(folder));
    return PST_OK;
}

/* Sets *ret to the latest step that has a checkpoint in the folder; 0: none. */
static enum pst_status find_newest_step(const char *folder, uint64_t *ret,
                                        struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    const enum pst_status status =
        pst_checkpoint_table(folder, false, &rows, diag);

    *ret = rows.n > 0 ? rows.at[0].step : 0;
    pst_vec_fini(&rows);
    return status;
}

/* Moves checkpoints after the current step into folder/former-N: the session
 * has gone back from them with penstock_load, and otherwise they would stay the
 * newest. Refuses if another program has made them. */
static enum pst_status set_later_aside(penstock_session *s, const char *folder,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_str text = {0};
    uint64_t newest;
    enum pst_status status = find_newest_step(folder, &newest, diag);

    if (status != PST_OK)
        return status;
    if (newest > find_seen(s, folder))
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                            "the folder %.500s has a checkpoint of step %llu, "
                            "which another program has made: go on from it "
                            "with penstock_load, or save to another folder",
                            folder, (unsigned long long)newest);
    if (newest > s->step)
        status = pst_checkpoint_set_aside(folder, s->step, &former, diag);
    if (status != PST_OK || former.n == 0)
        return status;
    pst_str_addf(&text,
                 "the run has gone back to step %llu: %u later checkpoints, up "
                 "to step %llu, are now in %s/%s",
                 (unsigned long long)s->step, former.n,
                 (unsigned long long)former.step, folder, former.folder);
    pstl_send_note(&s->messages, pst_str_text(&text));
    pst_str_fini(&text);
    return PST_OK;
}

/* Refuses if the second folder of the run in `folder` has a checkpoint after
 * the current step: a resume of the run would go on from that one, and drop the
 * steps of this session. */
static enum pst_status refuse_later_second(const penstock_session *s,
                                           const char *folder,
                                           struct pst_diag *diag)
{
    struct pst_checkpoint_second second = {0};
    enum pst_status status = pst_checkpoint_read_second(folder, &second, diag);

    if (status == PST_OK && second.dir != NULL && second.step > s->step)
        status =
            pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                         "the second folder of the run in %.500s, %.500s, "
                         "has a checkpoint of step %llu: go on from it "
                         "with penstock_load, or save to another folder",
                         folder, second.dir, (unsigned long long)second.step);
    else if (status == PST_OK && (second.gone || second.unread))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                              "the second folder of the run in %.500s, %.500s, "
                              "cannot be read, and may have a later "
                              "checkpoint: bring it back, or save to another "
                              "folder",
                              folder, second.dir);
    pst_free(second.dir);
    return status;
}

/* Takes ownership of the folder, or checks that the session still has it. */
static enum pst_status ensure_claim(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    enum pst_status status;

    if (s->is_half)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "penstock_forward_backward has begun a step: call "
                            "penstock_update before a checkpoint");
    if (folder == NULL || *folder == '\0')
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the folder is NULL or empty");
    if (!pstl_is_first(s))
        return PST_OK;
    if (s->owner == NULL || s->folder == NULL || strcmp(s->folder, folder) != 0)
        status = claim_folder(s, folder, diag);
    else if ((status = pst_checkpoint_check_owner(s->owner, diag)) == PST_OK)
        status = pst_checkpoint_restore_owner(s->owner, diag);
    if (status == PST_OK)
        status = refuse_later_second(s, folder, diag);
    if (status == PST_OK)
        status = set_later_aside(s, folder, diag);
    /* Makes the folder's entry now, so that nothing fails after the save. */
    return status == PST_OK ? record_seen(s, folder, 0, diag) : status;
}

/* The rows of steps that the session has made are the caller's: after them the
 * position in the data of the run is unknown, which the checkpoint records. */
static void note_place(const penstock_session *s, struct pst_save_note *note)
{
    if (s->step == s->placed)
        note->place = s->place;
    else if (strstr(s->run_options, PST_CHECKPOINT_DATA_UNTIL "=") == NULL)
        (void)snprintf(note->more, sizeof(note->more),
                       PST_CHECKPOINT_DATA_UNTIL "=%llu\n",
                       (unsigned long long)s->placed);
}

/* True if the checkpoint records the session's own value of an option that
 * changes results, not that of the run which it has loaded: for what its state
 * has, and for all if it has made steps, unless `penstock set` has set the
 * option in the run, where it stays set. */
static bool is_own(const penstock_session *s, const struct pstd_option *row)
{
    const bool made = s->step != s->placed || s->run_options[0] == '\0';
    char given[64];

    if (!(row->groups & PSTD_OPT_NUMBERS) ||
        !pstl_option_is_of(PSTL_SESSION, row->name))
        return false;
    (void)snprintf(given, sizeof(given), "given --%s=", row->name);
    return strcmp(row->name, "ema") == 0 ||
           (made && strstr(s->run_options, given) == NULL);
}

/* Makes the options of the run that the checkpoint records. */
static enum pst_status make_options(const penstock_session *s,
                                    struct pst_str *ret, struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (const char *at = s->run_options; *at != '\0';) {
        const size_t line = strcspn(at, "\n"), name = strcspn(at, "=");
        bool own = false;

        for (size_t i = 0; i < n && !own; i++)
            own = name == strlen(rows[i].name) + 2 &&
                  strncmp(at, "--", 2) == 0 &&
                  strncmp(at + 2, rows[i].name, name - 2) == 0 &&
                  is_own(s, &rows[i]);
        if (!own)
            pst_str_addn(ret, at, line + (at[line] != '\0'));
        at += line + (at[line] != '\0');
    }
    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};
        char name[64];

        if (!is_own(s, &rows[i]))
            continue;
        (void)snprintf(name, sizeof(name), "--%s", rows[i].name);
        pstd_setting_add(ret, name,
                         pstd_config_text(&s->config, &rows[i], &text)
                             ? pst_str_text(&text)
                             : "not given");
        ret->failed |= text.failed;
        pst_str_fini(&text);
    }
    return ret->failed ? pst_diag_nomem(diag, ret->len) : PST_OK;
}

int penstock_save(penstock_session *session, const char *folder,
                  struct penstock_error *error)
{
    char bad[PST_CHECKPOINT_REASON] = "";
    struct pst_save_note note = {.ret_bad = bad};
    struct pst_str options = {0};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    note.course = session->course;
    note.changes = session->changes;
    status = make_options(session, &options, &diag);
    note.options = pst_str_text(&options);
    note_place(session, &note);
    if (status == PST_OK)
        status = ensure_claim(session, folder, &diag);
    status = pst_transport_agree(session->transport, status, &diag);
    if (status == PST_OK)
        status = pst_transport_agree(
            session->transport,
            pst_engine_save(session->engine, folder, session->step,
                            (unsigned)session->config.keep, &note, &diag),
            &diag);
    if (status == PST_OK && pstl_is_first(session))
        status = record_seen(session, folder, session->step, &diag);
    if (status == PST_OK && bad[0] != '\0') {
        struct pst_str text = {0};

        pst_str_addf(&text,
                     "the checkpoint of step %llu is marked as bad, and is not "
                     "loaded: %s",
                     (unsigned long long)session->step, bad);
        pstl_send_note(&session->messages, pst_str_text(&text));
        pst_str_fini(&text);
    }
    pst_str_fini(&options);
    return pstl_session_release(session, status, &diag, error);
}

static void report_skipped(void *ctx, const char *dir, uint64_t step,
                           const char *text)
{
    (void)dir;
    (void)step;
    pstl_send_note(ctx, text);
}

/* COLLECTIVE. Loads into the session's engine or one that takes its place, and
 * marks the session as failed if some of its values are those of the checkpoint
 * and others are not. */
static enum pst_status load_into(penstock_session *s, struct pst_engine *engine,
                                 const char *folder,
                                 struct pst_checkpoint_info *ret,
                                 struct pst_diag *diag)
{
    char words[2048];
    bool begun = false;
    struct pst_str differs = {0};
    const struct pst_load_choice choice = {.dir = folder,
                                           .step = PST_CHECKPOINT_LATEST,
                                           .begun = &begun,
                                           .differs = &differs,
                                           .skipped = report_skipped,
                                           .ctx = &s->messages};
    enum pst_status status = pst_engine_load(engine, &choice, ret, NULL, diag);

    if (status != PST_OK && engine == s->engine &&
        pst_transport_agree(s->transport, begun ? PST_ERR_INTERNAL : PST_OK,
                            NULL) != PST_OK)
        s->failed = true;
    if (status == PST_OK && differs.len > 0) {
        pstl_words_of_options(pst_str_text(&differs), words, sizeof(words));
        pstl_send_note(&s->messages, words);
    }
    pst_str_fini(&differs);
    return status;
}

/* COLLECTIVE. Loads a checkpoint whose run has changed the model, after it was
 * refused; nothing has changed if that fails. */
static enum pst_status load_changed(penstock_session *s, const char *folder,
                                    struct pst_checkpoint_info *ret,
                                    struct pst_diag *diag)
{
    struct penstock_session next;
    struct pstl_changed *changed;
    enum pst_status status =
        pstl_carried_open(s, folder, &next, &changed, diag);

    if (status != PST_OK)
        return status;
    status = load_into(s, next.engine, folder, ret, diag);
    if (status == PST_OK) {
        pstl_changed_install(s, &next, changed);
        pstl_send_note(&s->messages,
                       "the run of the checkpoint has changed its model "
                       "(`penstock swap`, `freeze` or `attr`): this session "
                       "goes on with the changed one");
    } else {
        pst_engine_free(next.engine);
        pstl_changed_free(changed);
    }
    pstl_session_free_step(&next);
    return status;
}

/* COLLECTIVE. Loads the newest checkpoint of the folder. */
static enum pst_status load_checkpoint(penstock_session *s, const char *folder,
                                       struct pst_checkpoint_info *ret,
                                       struct pst_diag *diag)
{
    enum pst_status status = load_into(s, s->engine, folder, ret, diag);

    if (status != PST_OK)
        return s->failed ? status : load_changed(s, folder, ret, diag);
    return pstl_carried_keep(s, folder, ret->step, diag);
}

/* Takes over the run of a loaded checkpoint, for later saves, and tells the
 * caller of its second folder. Rank 0. */
static enum pst_status adopt_run(penstock_session *s, const char *folder,
                                 const struct pst_checkpoint_info *info,
                                 struct pst_diag *diag)
{
    struct pst_checkpoint_run whose = {0};
    struct pst_str text = {0};
    uint64_t newest = info->step;
    enum pst_status status;

    memcpy(s->run_options, info->options, sizeof(info->options));
    if (find_newest_step(folder, &newest, NULL) != PST_OK)
        newest = info->step;
    status = record_seen(s, folder, newest, diag);
    /* Later saves to that folder continue its run. */
    if (pst_checkpoint_read_run(folder, &whose, NULL) == PST_OK &&
        whose.name[0] != '\0') {
        memcpy(s->run, whose.name, sizeof(s->run));
        s->course = PST_MAX(s->course, whose.course);
    }
    pst_free(whose.fallback);
    if (pst_checkpoint_describe_second(folder, info, true, &text))
        pstl_send_note(&s->messages, pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error)
{
    struct pst_checkpoint_info info;
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (folder == NULL || *folder == '\0')
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                              "the folder is NULL or empty");
    else if (pstl_is_first(session))
        status = record_seen(session, folder, 0, &diag);
    status = pst_transport_agree(session->transport, status, &diag);
    if (status == PST_OK)
        session->has_grads = session->is_half = false;
    if (status == PST_OK)
        status = load_checkpoint(session, folder, &info, &diag);
    if (status == PST_OK) {
        session->step = info.step;
        session->changes = info.changes;
        session->course = info.course;
        session->place = info.place;
        session->placed = info.step;
        if (ret_step != NULL)
            *ret_step = info.step;
    }
    if (status == PST_OK && pstl_is_first(session))
        status = adopt_run(session, folder, &info, &diag);
    return pstl_session_release(session, status, &diag, error);
}
