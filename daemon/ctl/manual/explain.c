// SPDX-License-Identifier: Apache-2.0
/* `penstock explain`: prints rows of the error catalogue. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"

#include <stdio.h>
#include <string.h>

static json_t *to_json(enum pst_error error)
{
    const enum pst_status status = pst_error_status(error);

    return json_pack("{s:s, s:s, s:i, s:s, s:s}", "id", pst_error_id(error),
                     "status", pst_status_name(status), "exit_code",
                     pst_status_exit_code(status), "cause",
                     pst_error_cause(error), "remedy", pst_error_remedy(error));
}

static enum pst_status print_list(bool json, struct pst_diag *diag)
{
    json_t *rows = json ? json_array() : NULL;

    for (unsigned i = PST_E_NONE + 1; i < PST_N_ERRORS; i++) {
        const enum pst_error error = (enum pst_error)i;

        if (json)
            (void)json_array_append_new(rows, to_json(error));
        else
            pstctl_printf(stdout, "%-26s %3d  %s\n", pst_error_id(error),
                          pst_status_exit_code(pst_error_status(error)),
                          pst_error_cause(error));
    }
    return json ? pstctl_json_print(json_pack("{s:o}", "errors", rows), diag)
                : PST_OK;
}

static void print_row(enum pst_error error)
{
    const enum pst_status status = pst_error_status(error);

    pstctl_printf(stdout, "%s: %s\n\ncause: %s\nnext:  %s\nexit code: %d\n",
                  pst_error_id(error), pst_status_text(status),
                  pst_error_cause(error), pst_error_remedy(error),
                  pst_status_exit_code(status));
}

static enum pst_status refuse_unknown(const char *id, struct pst_diag *diag)
{
    const char *names[PST_N_ERRORS];
    int near;

    for (unsigned i = 0; i < PST_N_ERRORS; i++)
        names[i] = pst_error_id((enum pst_error)i);
    near = pst_nearest(id, names, PST_N_ERRORS);
    return pst_diag_set(
        diag, PST_E_COMMAND_NO_SUCH_ERROR,
        "there is no error \"%.80s\"%s%s; penstock explain --list shows all",
        id, near > 0 ? ", did you mean " : "", near > 0 ? names[near] : "");
}

static enum pst_status run_explain(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    char id[64];
    enum pst_error error;

    if (config->list == (config->n_args > 0))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "explain takes an ID or --list, one of them");
    if (config->list)
        return print_list(config->json, diag);
    /* Accepts the id also in brackets, as messages print it. */
    (void)snprintf(id, sizeof(id), "%s",
                   config->args[0] + (config->args[0][0] == '['));
    id[strcspn(id, "]")] = '\0';
    error = pst_error_find(id);
    if (error == PST_E_NONE)
        return refuse_unknown(config->args[0], diag);
    if (config->json)
        return pstctl_json_print(to_json(error), diag);
    print_row(error);
    return PST_OK;
}

const struct pstctl_command pstctl_explain = {
    "explain",
    "[ID]",
    0,
    1,
    PSTD_OPT_EXPLAIN | PSTD_OPT_JSON,
    "explain an error and what to do about it",
    "ID is the text in brackets at the end of a message, as in \"... "
    "[file.missing]\".",
    run_explain};
