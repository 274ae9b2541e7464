// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/states.h"

#include <string.h>

#include "stages/base/alloc.h"

enum pst_status pstd_change_states_read(const struct pstd_change_order *order,
                                        struct pstd_change_states *ret,
                                        struct pst_diag *diag)
{
    const bool said = order->kind == PSTD_CHANGE_SWAP;
    const size_t n = said ? strlen(order->value) + 1 : 1;
    char *at, *end;

    pst_map_init(&ret->old, PST_TAG_DAEMON);
    at = ret->text = pst_calloc(PST_TAG_DAEMON, n, 1);
    if (at == NULL)
        return pst_diag_nomem(diag, n);
    memcpy(at, said ? order->value : "", n);
    while (*at != '\0') {
        char *name = at;

        for (int i = 0; i < 2; i++) {
            end = strchr(at, '\n');
            if (end == NULL)
                return pst_diag_set(diag, PST_E_STATE_MAP,
                                    "the names of --state are no pairs");
            *end = '\0';
            if (i == 0)
                at = end + 1;
        }
        if (pst_map_has(&ret->old, name))
            return pst_diag_set(diag, PST_E_STATE_MAP,
                                "--state names \"%.200s\" twice", name);
        if (!pst_map_put(&ret->old, name, at))
            return pst_diag_nomem(diag, n);
        at = end + 1;
    }
    return PST_OK;
}

void pstd_change_states_fini(struct pstd_change_states *states)
{
    pst_map_fini(&states->old);
    pst_free(states->text);
}

const char *pstd_change_states_get(const struct pstd_change_states *states,
                                   const char *fqn)
{
    return pst_map_get(&states->old, fqn);
}

static const struct pst_plan_param *find_param(const struct pst_plan *plan,
                                               const char *fqn)
{
    const int i = pst_plan_find_param(plan, fqn);

    return i >= 0 ? &plan->params.at[i] : NULL;
}

/* True if each stage that updates the new parameter also has the states of the
 * old one. */
static bool is_on_same_stages(const struct pst_plan_param *to,
                              const struct pst_plan_param *from)
{
    for (unsigned i = 0; i < to->n_stages; i++) {
        bool found = false;

        for (unsigned k = 0; k < from->n_stages; k++)
            found = found ||
                    (from->stages[k] == to->stages[i] &&
                     (!from->transmit || from->owner_stage == to->stages[i]));
        if (!found && (!to->transmit || to->owner_stage == to->stages[i]))
            return false;
    }
    return true;
}

static enum pst_status check_pair(const char *name, const char *old,
                                  const struct pst_plan_param *to,
                                  const struct pst_plan_param *from,
                                  struct pst_diag *diag)
{
    char new_text[PST_META_TEXT], old_text[PST_META_TEXT];

    if (!to->requires_grad || !from->requires_grad)
        return pst_diag_set(diag, PST_E_STATE_MAP,
                            "--state: \"%.200s\" is not trained, so that it "
                            "has no state",
                            to->requires_grad ? old : name);
    if (!pst_meta_same(&to->meta, &from->meta))
        return pst_diag_set(diag, PST_E_STATE_MAP,
                            "--state: \"%.200s\" is %s and \"%.200s\" was %s",
                            name, pst_meta_text(&to->meta, new_text), old,
                            pst_meta_text(&from->meta, old_text));
    if (!is_on_same_stages(to, from))
        return pst_diag_set(diag, PST_E_STATE_OTHER_STAGE,
                            "--state: the state of \"%.200s\" is in another "
                            "stage than \"%.200s\"",
                            old, name);
    return PST_OK;
}

enum pst_status pstd_change_states_check(
    const struct pstd_change_states *states,
    const struct pstd_replaced *replaced, const struct pst_plan *before,
    const struct pst_plan *after, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < states->old.n && status == PST_OK; i++) {
        const char *name = states->old.entries[i].key;
        const char *old = states->old.entries[i].value;
        const struct pst_plan_param *to = find_param(after, name);
        const struct pst_plan_param *from = find_param(before, old);

        if (to == NULL || !pstd_replaced_has_param(replaced, to->fqn))
            return pst_diag_set(diag, PST_E_STATE_MAP,
                                "--state: the new module has no parameter "
                                "\"%.200s\"",
                                name);
        if (strcmp(to->fqn, name) != 0)
            return pst_diag_set(diag, PST_E_STATE_MAP,
                                "--state: call \"%.200s\" by its first name, "
                                "\"%.200s\"",
                                name, to->fqn);
        if (from == NULL)
            return pst_diag_set(diag, PST_E_STATE_MAP,
                                "--state: the model had no parameter "
                                "\"%.200s\"",
                                old);
        status = check_pair(name, old, to, from, diag);
    }
    return status;
}
