// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of a session. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/setting.h"
#include "lib/collective.h"
#include "lib/saves/claim.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

#define TAG PST_TAG_CLIENT

void pstl_checkpoint_fini(penstock_session *s)
{
    pstl_folders_fini(&s->folders);
    pstl_folders_fini(&s->seconds);
}

/* Refuses a save that cannot be made. Takes ownership of the folder for the
 * session. */
static enum pst_status prepare_save(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    if (s->is_half)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "penstock_forward_backward has begun a step: call "
                            "penstock_update before a checkpoint");
    if (folder == NULL || *folder == '\0')
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the folder is NULL or empty");
    return pstl_is_first(s) ? pstl_claim_ensure(s, folder, diag) : PST_OK;
}

/* Sets the position in the data that the checkpoint records. The session's own
 * steps used rows of the caller, so the position is still that of the loaded
 * checkpoint; the number of the session's steps since then is recorded, too. */
static void note_place(const penstock_session *s, struct pst_save_note *note)
{
    note->place = s->place;
    note->place.since += s->step - s->placed;
    if (s->step != s->placed &&
        strstr(s->run_options, PST_CHECKPOINT_DATA_UNTIL "=") == NULL)
        (void)snprintf(note->more, sizeof(note->more),
                       PST_CHECKPOINT_DATA_UNTIL "=%llu\n",
                       (unsigned long long)s->placed);
}

/* True if the checkpoint records the session's value of this option, which
 * changes results, instead of the value of the loaded run. That holds for all
 * options of a session that has made steps since the load, or has loaded
 * nothing, except those that `penstock set` has set in the run. It always holds
 * for --ema, since the checkpoint has the averages of the session. */
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

/* Appends the options that the checkpoint records: those of the loaded run,
 * with the session's own values where is_own() says so. */
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
    struct pstl_collective call = {
        .name = "save", .what = folder, .phase = PST_ALIVE_SAVE};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    note.changes = session->changes;
    status = make_options(session, &options, &diag);
    note.options = pst_str_text(&options);
    note_place(session, &note);
    if (status == PST_OK)
        status = prepare_save(session, folder, &diag);
    note.course = session->course;
    call.place = pstl_call_place(folder);
    status = pstl_call_settle(session, &call, status, &diag);
    if (status == PST_OK)
        status = pst_transport_agree(
            session->transport,
            pst_engine_save(session->engine, folder, session->step,
                            (unsigned)session->config.keep, &note, &diag),
            &diag);
    if (status == PST_OK && pstl_is_first(session))
        pstl_claim_record(session, folder);
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

/* COLLECTIVE. Loads into the session's engine, or into a new one that will
 * replace it. Marks the session as failed if its engine then has some values of
 * the checkpoint and some old ones. */
static enum pst_status load_into(penstock_session *s, struct pst_engine *engine,
                                 const char *folder,
                                 const struct pst_checkpoint_lineage *lineage,
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
                                           .lineage = lineage,
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

/* COLLECTIVE. Loads a checkpoint whose run has changed the model, after
 * load_into() has refused it. After a failure nothing has changed. */
static enum pst_status load_changed(
    penstock_session *s, const char *folder,
    const struct pst_checkpoint_lineage *lineage,
    struct pst_checkpoint_info *ret, struct pst_diag *diag)
{
    struct penstock_session next;
    struct pstl_changed *changed;
    enum pst_status status =
        pstl_carried_open(s, folder, lineage, &next, &changed, diag);

    if (status != PST_OK)
        return status;
    status = load_into(s, next.engine, folder, lineage, ret, diag);
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

/* COLLECTIVE. Loads the newest checkpoint of the folder that is in the past of
 * the run (stages/files/checkpoint/lineage.h). */
static enum pst_status load_checkpoint(
    penstock_session *s, const char *folder,
    const struct pst_checkpoint_rewinds *rewinds,
    struct pst_checkpoint_info *ret, struct pst_diag *diag)
{
    const struct pst_checkpoint_lineage lineage = {.newest = UINT64_MAX,
                                                   .rewinds = *rewinds};
    enum pst_status status =
        load_into(s, s->engine, folder, &lineage, ret, diag);

    if (status != PST_OK)
        return s->failed ? status
                         : load_changed(s, folder, &lineage, ret, diag);
    return pstl_carried_keep(s, folder, ret->step, diag);
}

/* Contents of a folder, and of the second folder of its run, before a load. */
struct before {
    struct pstl_folder first, second;
};

/* Makes the run of a loaded checkpoint the session's run, for later saves, and
 * sends the caller a note about the run's second folder. Rank 0. */
static void adopt_run(penstock_session *s, const char *folder,
                      const struct pst_checkpoint_info *info,
                      struct before *known)
{
    const uint64_t course = pst_checkpoint_course(&known->first.rewinds);
    struct pst_checkpoint_run whose = {0};
    struct pst_str text = {0};

    memcpy(s->run_options, info->options, sizeof(info->options));
    pstl_folder_add(&known->first, info->step, info->digest);
    pstl_folders_put(&s->folders, &known->first);
    if (known->second.path != NULL)
        pstl_folders_put(&s->seconds, &known->second);
    /* Later saves to that folder continue its run. */
    if (pst_checkpoint_read_run(folder, &whose, NULL) == PST_OK &&
        whose.name[0] != '\0') {
        /* The session owns a folder of another run, which it gives up. */
        if (strcmp(s->run, whose.name) != 0)
            pstl_claim_release(s);
        memcpy(s->run, whose.name, sizeof(s->run));
        s->course = PST_MAX(s->course, course);
    }
    pst_free(whose.fallback);
    if (pst_checkpoint_describe_second(folder, info, true, &text))
        pstl_send_note(&s->messages, pst_str_text(&text));
    pst_str_fini(&text);
}

/* Reads which checkpoints are in the folders before a load. A folder that
 * cannot be read counts as empty: the load reports errors of the first folder.
 * Rank 0. */
static enum pst_status look_before_load(penstock_session *s, const char *folder,
                                        struct before *ret,
                                        struct pst_diag *diag)
{
    struct pst_checkpoint_second second = {0};
    struct pst_diag ignored;
    enum pst_status status = pstl_folders_reserve(&s->folders, diag);

    if (status == PST_OK)
        status = pstl_folders_reserve(&s->seconds, diag);
    if (status == PST_OK)
        status = pstl_folder_read(folder, &ret->first, diag);
    if (status != PST_ERR_NOMEM &&
        pst_checkpoint_read_second(folder, &second, &ignored) == PST_OK &&
        second.dir != NULL)
        status = pstl_folder_read(second.dir, &ret->second, diag);
    pst_free(second.dir);
    return status == PST_ERR_NOMEM ? status : PST_OK;
}

int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error)
{
    struct pst_checkpoint_info info;
    struct before known = {0};
    struct pstl_collective call = {
        .name = "load", .what = folder, .phase = PST_ALIVE_LOAD};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (folder == NULL || *folder == '\0')
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                              "the folder is NULL or empty");
    else if (pstl_is_first(session))
        status = look_before_load(session, folder, &known, &diag);
    call.place = pstl_call_place(folder);
    status = pstl_call_settle(session, &call, status, &diag);
    if (status == PST_OK)
        session->has_grads = session->is_half = false;
    if (status == PST_OK)
        status = load_checkpoint(session, folder, &known.first.rewinds, &info,
                                 &diag);
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
        adopt_run(session, folder, &info, &known);
    pstl_folder_fini(&known.first);
    pstl_folder_fini(&known.second);
    return pstl_session_release(session, status, &diag, error);
}
