// SPDX-License-Identifier: Apache-2.0
/* Options of the library: rows of the table that the commands have, too. */
#include <string.h>

#include "lib/object.h"

/* Options of a session besides those that shape a step. */
static const char *const extra[] = {
    "ranks", "steps", "watchdog", "accept-lost-backward", "keep", "verify"};

/* Returns the groups in which the option is looked up; 0: none. */
static uint64_t groups_of(bool session, const char *name)
{
    const struct pstd_option *row;

    if (!session)
        return PSTD_OPT_SPLIT;
    for (size_t i = 0; i < PST_COUNT(extra); i++)
        if (strcmp(name, extra[i]) == 0) {
            row = pstd_option_named(~UINT64_C(0), name);
            return row != NULL ? row->groups : 0;
        }
    return PSTD_OPT_STEP;
}

static enum pst_status set_one(struct pstd_config *config, bool session,
                               const struct penstock_option *o,
                               struct pst_diag *diag)
{
    uint64_t groups;

    if (o->name == NULL || o->value == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "an option has no name or no value (NULL)");
    groups = groups_of(session, o->name);
    if (pstd_option_named(groups, o->name) == NULL &&
        pstd_option_named(~UINT64_C(0), o->name) != NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_OPTION,
                            "\"%.60s\" is no option of penstock_%s", o->name,
                            session ? "session_new" : "open");
    if (strcmp(o->name, "microbatch-weights") == 0 &&
        strcmp(o->value, "tokens") == 0)
        return pst_diag_set(diag, PST_E_LIBRARY_OPTION,
                            "\"microbatch-weights\" is rows or equal here: "
                            "tokens are counted in data files");
    return pstd_config_set(config, groups, o->name, o->value, diag);
}

enum pst_status pstl_options_set(struct pstd_config *config, bool session,
                                 const struct penstock_option *options,
                                 size_t n, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (options == NULL && n > 0)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "options is NULL, and n_options is not 0");
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = set_one(config, session, &options[i], diag);
    return status;
}
