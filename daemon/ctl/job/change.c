// SPDX-License-Identifier: Apache-2.0
/* `penstock swap`, `freeze`, `unfreeze`: change the model of a running job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/wait.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/model/states.h"
#include "stages/base/plural.h"
#include "stages/base/str.h"

/* Parses FQN or FQN@K; K may also be given by --at-call. *ret_call: K, or -1.
 */
static enum pst_status read_name(const struct pstd_config *config,
                                 struct pst_str *fqn, int64_t *ret_call,
                                 struct pst_diag *diag)
{
    const char *name = config->args[0], *at = strrchr(name, '@');

    *ret_call = PSTD_GIVEN(config, at_call) ? (int64_t)config->at_call : -1;
    if (at != NULL &&
        (*ret_call >= 0 || !pst_parse_i64(at + 1, ret_call) || *ret_call < 0))
        return pst_diag_set(diag, PST_E_SWAP_FILE,
                            "%.200s: expected FQN or FQN@CALL%s", name,
                            PSTD_GIVEN(config, at_call) ? ", not both that and "
                                                          "--at-call"
                                                        : "");
    if (*ret_call > INT_MAX)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "call %lld: no module has so many calls",
                            (long long)*ret_call);
    pst_str_addn(fqn, name, at != NULL ? (size_t)(at - name) : strlen(name));
    return fqn->failed ? pst_diag_nomem(diag, fqn->len) : PST_OK;
}

static void show_swap(const pstctl_event *event)
{
    const long long frozen = (long long)pstctl_integer(event, "frozen");
    const long long calls = (long long)pstctl_integer(event, "calls");
    struct pst_str text = {0};

    pst_str_addf(&text, "%s replaced after step %lld: %lld call%s",
                 pstctl_text(event, "module"),
                 (long long)pstctl_integer(event, "step"), calls,
                 pst_plural((uint64_t)calls));
    if (frozen > 0)
        pst_str_addf(&text, ", %lld parameter%s frozen (penstock unfreeze)",
                     frozen, frozen == 1 ? " stays" : "s stay");
    pst_str_addf(&text, ", %.2f s", pstctl_number(event, "seconds"));
    pstctl_printf(stdout, "%s\n", pst_str_text(&text));
    pst_str_fini(&text);
}

static enum pst_status show_outcome(const struct pstd_config *config,
                                    const pstctl_event *event,
                                    struct pst_diag *diag)
{
    const long long step = (long long)pstctl_integer(event, "step");
    const long long n = (long long)pstctl_integer(event, "params");
    const double seconds = pstctl_number(event, "seconds");

    if (pstctl_is_lost(event, diag))
        return diag->status;
    if (pst_has_suffix(event->name, "_refused"))
        return pstctl_refused_status(event, diag);
    pstctl_warn_changed(event);
    if (config->json)
        return pstctl_json_print(pstctl_event_json(event), diag);
    if (strcmp(event->name, "swapped") == 0)
        show_swap(event);
    else
        pstctl_printf(stdout, "%lld parameter%s %s after step %lld, %.2f s\n",
                      n, pst_plural((uint64_t)n), event->name, step, seconds);
    return PST_OK;
}

/* Sends the request and, once it is accepted, waits for its outcome. */
static enum pst_status send_request(struct pstctl_conn *conn,
                                    const struct pstd_config *config,
                                    pstctl_request *request,
                                    struct pst_diag *diag)
{
    static const char *const ends[] = {
        "swapped",        "swap_refused", "frozen", "unfrozen",
        "freeze_refused", "train_end",    "start"};
    pstd_frame *event = NULL;
    enum pst_status status =
        pstctl_await_change(conn, request, ends, PST_COUNT(ends), &event, diag);

    if (status == PST_OK)
        status = show_outcome(config, event->event, diag);
    pstd_frame_free(event);
    return status;
}

static enum pst_status send_swap(struct pstctl_conn *conn,
                                 const struct pstd_config *config,
                                 const char *fqn, int64_t call,
                                 const char *path, const char *states,
                                 struct pst_diag *diag)
{
    Pst__Control__Swap swap = PST__CONTROL__SWAP__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;

    swap.module = (char *)fqn;
    swap.one_call = call >= 0;
    swap.call = call >= 0 ? (uint32_t)call : 0;
    swap.aliases = config->aliases;
    swap.keep = strcmp(config->state, "keep") == 0;
    swap.path = (char *)path;
    swap.states = (char *)states;
    request.body_case = PST__CONTROL__REQUEST__BODY_SWAP;
    request.swap = &swap;
    return send_request(conn, config, &request, diag);
}

static enum pst_status run_swap(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    char *path = realpath(config->args[1], NULL);
    struct pst_str fqn = {0}, states = {0};
    struct pstctl_conn conn;
    int64_t call = -1;
    enum pst_status status;

    if (path == NULL)
        return pst_diag_errno(diag, errno, "cannot open the new module %s",
                              config->args[1]);
    status = read_name(config, &fqn, &call, diag);
    if (status == PST_OK)
        status = pstd_states_pairs(config->state, &states, diag);
    if (status == PST_OK)
        status = pstctl_connect(config, &conn, diag);
    if (status == PST_OK) {
        status = send_swap(&conn, config, pst_str_text(&fqn), call, path,
                           pst_str_text(&states), diag);
        pstctl_close(&conn);
    }
    pst_str_fini(&fqn);
    pst_str_fini(&states);
    free(path);
    return status;
}

const struct pstctl_command pstctl_swap = {
    "swap",
    "FQN[@K] MODULE.pt2",
    2,
    2,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON | PSTD_OPT_SWAP,
    "replace a module of a running job by another one",
    "MODULE.pt2 is the new module, exported by itself. All ranks prepare it at "
    "the\n"
    "end of a step. Then either all of them use it, or none does: the command "
    "prints\n"
    "the reason, and nothing has changed. The new module stays until the end "
    "of the\n"
    "run.",
    run_swap};

static enum pst_status set_frozen(const struct pstd_config *config, bool frozen,
                                  struct pst_diag *diag)
{
    Pst__Control__Freeze freeze = PST__CONTROL__FREEZE__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    struct pstctl_conn conn;
    enum pst_status status = pstctl_connect(config, &conn, diag);

    if (status != PST_OK)
        return status;
    freeze.pattern = (char *)config->args[0];
    freeze.frozen = frozen;
    request.body_case = PST__CONTROL__REQUEST__BODY_FREEZE;
    request.freeze = &freeze;
    status = send_request(&conn, config, &request, diag);
    pstctl_close(&conn);
    return status;
}

static enum pst_status run_freeze(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    return set_frozen(config, true, diag);
}

static enum pst_status run_unfreeze(const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    return set_frozen(config, false, diag);
}

#define PATTERN                                                                \
    "PATTERN is the name of a module or parameter; * and ? stand for any "     \
    "text "                                                                    \
    "and\nany character. It holds from the end of the step on, in the job's "  \
    "run and in\nruns that resume its checkpoints."

const struct pstctl_command pstctl_freeze = {
    "freeze",
    "PATTERN",
    1,
    1,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON,
    "stop training parameters of a running job",
    "What is frozen costs no backward pass and no memory of the "
    "optimizer.\n" PATTERN,
    run_freeze};
const struct pstctl_command pstctl_unfreeze = {
    "unfreeze",
    "PATTERN",
    1,
    1,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON,
    "train parameters of a running job again",
    PATTERN,
    run_unfreeze};
