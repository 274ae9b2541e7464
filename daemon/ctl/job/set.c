// SPDX-License-Identifier: Apache-2.0
/* `penstock set`: changes options of the run of a running job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/wait.h"

#include <string.h>

#include "stages/base/str.h"

#define MAX_OPTIONS 32
#define GROUP       "group."

/* Options of the request; `arena` owns their texts. */
struct wanted {
    struct pst_arena arena;
    Pst__Control__Option options[MAX_OPTIONS], *list[MAX_OPTIONS];
};

/* Splits "group.TERMS.OPTION=VALUE", which adds the rule TERMS:OPTION=VALUE.
 * Terms may contain '.' and '=', names of options do not. */
static enum pst_status split_group(struct wanted *w, const char *word,
                                   char **ret_name, char **ret_value,
                                   struct pst_diag *diag)
{
    const char *terms = word + strlen(GROUP), *is = strrchr(terms, '=');
    const char *dot = is;

    while (dot != NULL && dot > terms && *dot != '.')
        dot--;
    if (dot == NULL || dot == terms)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "\"%.100s\": expected group.TERMS.OPTION=VALUE, "
                            "such as group.norms.lr=0.1",
                            word);
    *ret_name = pst_arena_strdup(&w->arena, "group");
    *ret_value = pst_arena_printf(&w->arena, "%.*s:%s", (int)(dot - terms),
                                  terms, dot + 1);
    return PST_OK;
}

/* Reads KEY=VALUE. Checks name and value by setting the option in `check`; the
 * job itself checks more. */
static enum pst_status read_option(struct wanted *w, struct pstd_config *check,
                                   const char *word, size_t i,
                                   struct pst_diag *diag)
{
    const char *is = strchr(word, '=');
    char *name, *value;

    if (is == NULL || is == word)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "\"%.100s\": expected OPTION=VALUE, such as lr=0.1",
                            word);
    if (pst_has_prefix(word, GROUP)) {
        const enum pst_status status =
            split_group(w, word, &name, &value, diag);

        if (status != PST_OK)
            return status;
    } else {
        name = pst_arena_strndup(&w->arena, word, (size_t)(is - word));
        value = pst_arena_strdup(&w->arena, is + 1);
    }
    if (name == NULL || value == NULL)
        return pst_diag_nomem(diag, strlen(word));
    pst__control__option__init(&w->options[i]);
    w->options[i].name = name;
    w->options[i].value = value;
    w->list[i] = &w->options[i];
    return pstd_config_set_running(check, name, value, diag);
}

static enum pst_status read_options(struct wanted *w,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    struct pstd_config check;
    enum pst_status status;

    if (config->n_args > MAX_OPTIONS)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "at most %d options are set at once", MAX_OPTIONS);
    status = pstd_config_init(&check, diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < (size_t)config->n_args && status == PST_OK; i++)
        status = read_option(w, &check, config->args[i], i, diag);
    pstd_config_fini(&check);
    return status;
}

static enum pst_status show_outcome(const struct pstd_config *config,
                                    const pstctl_event *event,
                                    struct pst_diag *diag)
{
    if (pstctl_is_lost(event, diag))
        return diag->status;
    if (strcmp(event->name, "set_refused") == 0)
        return pstctl_refused_status(event, diag);
    if (config->json)
        return pstctl_json_print(pstctl_event_json(event), diag);
    pstctl_printf(stdout, "%s from step %lld on\n",
                  pstctl_text(event, "options"),
                  (long long)pstctl_integer(event, "step") + 1);
    return PST_OK;
}

static enum pst_status send_set(struct pstctl_conn *conn,
                                const struct pstd_config *config,
                                struct wanted *w, struct pst_diag *diag)
{
    static const char *const ends[] = {"set", "set_refused", "train_end",
                                       "start"};
    Pst__Control__Set set = PST__CONTROL__SET__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *event = NULL;
    enum pst_status status;

    set.n_options = (size_t)config->n_args;
    set.options = w->list;
    request.body_case = PST__CONTROL__REQUEST__BODY_SET;
    request.set = &set;
    status = pstctl_await_change(conn, &request, ends, PST_COUNT(ends), &event,
                                 diag);
    if (status == PST_OK)
        status = show_outcome(config, event->event, diag);
    pstd_frame_free(event);
    return status;
}

static enum pst_status run_set(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct wanted w = {0};
    struct pstctl_conn conn;
    enum pst_status status;

    pst_arena_init(&w.arena, PST_TAG_CLIENT);
    status = read_options(&w, config, diag);
    if (status == PST_OK)
        status = pstctl_connect(config, &conn, diag);
    if (status == PST_OK) {
        status = send_set(&conn, config, &w, diag);
        pstctl_close(&conn);
    }
    pst_arena_fini(&w.arena);
    return status;
}

const struct pstctl_command pstctl_set = {
    "set",
    "OPTION=VALUE...",
    1,
    32,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON,
    "change options of the run of a job while it goes on",
    "OPTION is lr, weight-decay, clip-norm, group (adds a rule;\n"
    "also group.TERMS.lr=X), no-decay, "
    "steps,\n"
    "eval-every, checkpoint-every, log-every, keep, patience, or another "
    "number "
    "of\n"
    "the optimizer or of the course of the learning rate. All ranks take the "
    "new\n"
    "values after the same step, or none does. Checkpoints record them, so "
    "that "
    "a\n"
    "resume goes on with them unless its own option has changed since.",
    run_set};
