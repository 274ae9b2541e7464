// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/states.h"

#include <jansson.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

#define MAX_BYTES ((size_t)1 << 20) /* maximum size of a mapping file */

/* Returns the name; NULL if it is NULL or empty, or contains a newline, which
 * separates names in a request. */
static const char *plain_name(const char *name)
{
    return name != NULL && name[0] != '\0' && strchr(name, '\n') == NULL ? name
                                                                         : NULL;
}

enum pst_status pstd_states_pairs(const char *state, struct pst_str *out,
                                  struct pst_diag *diag)
{
    const char *path, *key;
    enum pst_status status = PST_OK;
    char *text = NULL;
    json_t *json, *old;
    size_t size = 0;

    if (strcmp(state, "keep") == 0 || strcmp(state, "reset") == 0)
        return PST_OK;
    if (!pst_has_prefix(state, "map:"))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "--state: \"%.200s\" is none of "
                            "reset|keep|map:FILE",
                            state);
    path = state + strlen("map:");
    status = pst_file_read(path, MAX_BYTES, &text, &size, diag);
    if (status != PST_OK)
        return status;
    json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    pst_free(text);
    if (!json_is_object(json))
        status = PST_ERR_INPUT;
    json_object_foreach(json, key, old)
    {
        const char *name = plain_name(json_string_value(old));

        if (name == NULL || plain_name(key) == NULL)
            status = PST_ERR_INPUT;
        else
            pst_str_addf(out, "%s\n%s\n", key, name);
    }
    json_decref(json);
    if (status == PST_OK && out->failed)
        return pst_diag_nomem(diag, out->len);
    return status == PST_OK
               ? PST_OK
               : pst_diag_set(diag, PST_E_STATE_MAP,
                              "%.300s: expected names of parameters as JSON, "
                              "{\"NEW\": \"OLD\", ...}",
                              path);
}

enum pst_status pstd_states_read(const char *pairs, struct pstd_states *ret,
                                 struct pst_diag *diag)
{
    const size_t n = strlen(pairs) + 1;
    char *at, *end;

    pst_map_init(&ret->old, PST_TAG_DAEMON);
    at = ret->text = pst_calloc(PST_TAG_DAEMON, n, 1);
    if (at == NULL)
        return pst_diag_nomem(diag, n);
    memcpy(at, pairs, n);
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

void pstd_states_fini(struct pstd_states *states)
{
    pst_map_fini(&states->old);
    pst_free(states->text);
}

const char *pstd_states_get(const struct pstd_states *states, const char *fqn)
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

enum pst_status pstd_states_check(const struct pstd_states *states,
                                  const struct pstd_replaced *replaced,
                                  const struct pst_plan *before,
                                  const struct pst_plan *after,
                                  struct pst_diag *diag)
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
