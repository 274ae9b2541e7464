// SPDX-License-Identifier: Apache-2.0
/* Replaces a module of the model between two steps. The new plan and its engine
 * are made beside the old ones, which are kept if any rank fails. */
#include <string.h>

#include "daemon/common/model/changed.h"
#include "daemon/common/model/replace.h"
#include "daemon/common/model/states.h"
#include "daemon/common/setup.h"
#include "lib/collective.h"
#include "stages/base/alloc.h"
#include "stages/run/state/carried.h"
#include "stages/split/convert/again.h"

#define TAG PST_TAG_CLIENT

/* State of a replacement in progress. */
struct swap {
    penstock_session *session;
    struct pst_replacement what;
    /* parameters of the new module keep the optimizer states of old parameters
     * with their names */
    bool keep;
    struct pstd_states states; /* given by {"state", "map:FILE"} */
    struct pst_str said;       /* `keep` and `states`, to compare ranks */
    struct pst_model *old;     /* model of the plan before the replacement */
    struct pstd_replaced replaced;
    struct pstl_changed *changed;
    struct pst_engine *engine;
    struct pst_exec_options options;
    /* Receives the descriptions of the new engine's steps. */
    struct penstock_session next;
};

void pstl_changed_free(struct pstl_changed *changed)
{
    if (changed == NULL)
        return;
    pstd_changed_fini(&changed->of);
    pst_carried_close(changed->carried);
    pst_vec_fini(&changed->params);
    pst_vec_fini(&changed->buffers);
    pst_free(changed);
}

const struct pst_plan *pstl_plan(const penstock_session *s)
{
    return s->changed != NULL ? s->changed->of.batch.plan
                              : s->model->opened.plan;
}

const struct pstl_tensors *pstl_state_of(const penstock_session *s,
                                         enum penstock_kind kind)
{
    if (s->changed == NULL)
        return &s->model->tensors[kind];
    return kind == PENSTOCK_PARAMETER ? &s->changed->params
                                      : &s->changed->buffers;
}

/* --- values of the new model ---------------------------------------------- */

static enum pst_status read_start_value(void *ctx, unsigned i, void *dst,
                                        struct pst_diag *diag)
{
    const struct swap *x = ctx;

    return pst_engine_read_start(x->session->engine, x->session->batch.plan, i,
                                 dst, diag);
}

static bool is_fresh(void *ctx, const char *fqn)
{
    const struct swap *x = ctx;

    return pstd_replaced_has_param(&x->replaced, fqn);
}

static const char *old_state(void *ctx, const char *fqn)
{
    const struct swap *x = ctx;
    const char *old = pstd_states_get(&x->states, fqn);

    if (old != NULL)
        return old;
    return x->keep || !is_fresh(ctx, fqn) ? fqn : NULL;
}

static const char *old_value(void *ctx, const char *fqn)
{
    return is_fresh(ctx, fqn) ? NULL : fqn;
}

/* --- the new engine ------------------------------------------------------- */

static enum pst_status read_options(struct swap *x,
                                    const struct penstock_option *options,
                                    size_t n, struct pst_diag *diag)
{
    struct pstd_config config;
    enum pst_status status = pstd_config_init(&config, diag);

    if (status == PST_OK)
        status = pstl_options_set(&config, PSTL_SWAP, options, n, diag);
    if (status == PST_OK)
        status = pstd_states_pairs(config.state, &x->said, diag);
    if (status == PST_OK)
        status = pstd_states_read(pst_str_text(&x->said), &x->states, diag);
    if (status == PST_OK) {
        x->keep = strcmp(config.state, "keep") == 0;
        pst_str_addf(&x->said, "%d", x->keep);
        x->what.call = PSTD_GIVEN(&config, at_call) ? (int)config.at_call : -1;
        x->what.aliases = config.aliases;
    }
    pstd_config_fini(&config);
    return status;
}

static enum pst_status make_plan(struct swap *x, const char *path,
                                 struct pst_diag *diag)
{
    penstock_session *s = x->session;
    struct pst_plan *before = s->batch.plan;
    struct pstd_changed_plan *to;
    enum pst_status status;

    x->changed = pst_calloc(TAG, 1, sizeof(*x->changed));
    if (x->changed == NULL)
        return pst_diag_nomem(diag, sizeof(*x->changed));
    to = &x->changed->of;
    status = pst_plan_check_editable(before, diag);
    if (status == PST_OK)
        status = pst_plan_model(before, read_start_value, x, &x->old, diag);
    if (status == PST_OK)
        status =
            pstd_replace(before, x->old, &x->what, path, &x->replaced, diag);
    if (status == PST_OK)
        status = pst_split_again(x->replaced.model, before, before->loss,
                                 &to->plan, diag);
    if (status == PST_OK)
        status = pstd_replaced_check(before, to->plan, diag);
    if (status == PST_OK)
        status =
            pstd_states_check(&x->states, &x->replaced, before, to->plan, diag);
    if (status == PST_OK)
        status = pstd_changed_complete(to, &s->batch, s->model->opened.plan,
                                       is_fresh, x, diag);
    if (status == PST_OK)
        status = pstl_session_keep_gradients(s, &to->batch, diag);
    if (status == PST_OK)
        status = pstl_list_state(to->plan, &x->changed->params,
                                 &x->changed->buffers, diag);
    return status;
}

/* COLLECTIVE. Makes the new engine, and copies the values of the old one. */
static enum pst_status make_engine(struct swap *x, struct pst_diag *diag)
{
    penstock_session *s = x->session;
    struct pstd_changed_plan *to = &x->changed->of;
    const struct pst_adoption how = {old_state, old_value, NULL, x};
    struct pst_exec_options options;
    struct pst_str places = {0};
    enum pst_status status;

    x->options = s->options;
    pstd_set_batch(&x->options, &to->batch);
    options = x->options;
    status = pst_transport_agree(
        s->transport,
        pstd_changed_keep_placement(s->engine, &options, &places, diag), diag);
    if (status == PST_OK)
        status =
            pst_transport_agree(s->transport,
                                pst_engine_new(to->batch.plan, s->transport,
                                               &options, &x->engine, diag),
                                diag);
    pst_str_fini(&places);
    if (status == PST_OK)
        status = pst_transport_agree(
            s->transport,
            pst_engine_copy_state(x->engine, s->engine, &how, diag), diag);
    if (status == PST_OK)
        status = pst_transport_agree(s->transport,
                                     pstd_changed_copy_params(to, diag), diag);
    if (status == PST_OK)
        status = pstd_changed_gather(to, s->engine, s->batch.plan, old_value, x,
                                     diag);
    if (status == PST_OK) {
        x->next.model = s->model;
        x->next.transport = s->transport;
        x->next.options = x->options;
        x->next.batch = to->batch;
        x->next.engine = x->engine;
        status = pstl_session_describe_step(&x->next, diag);
    }
    if (status == PST_OK)
        status = pstl_changed_check(s, &x->next, diag);
    return pst_transport_agree(s->transport, status, diag);
}

enum pst_status pstl_changed_check(const penstock_session *s,
                                   const struct penstock_session *next,
                                   struct pst_diag *diag)
{
    if (next->n_outputs == s->n_outputs && next->n_inputs == s->n_inputs)
        return PST_OK;
    return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                        "the model has %zu inputs and %zu outputs that are "
                        "tensors, and had %zu and %zu",
                        next->n_inputs, next->n_outputs, s->n_inputs,
                        s->n_outputs);
}

void pstl_changed_install(penstock_session *s,
                          const struct penstock_session *next,
                          struct pstl_changed *changed)
{
    pstl_forward_free(s->forward);
    s->forward = NULL;
    pst_engine_free(s->engine);
    s->engine = next->engine;
    memcpy(s->inputs, next->inputs, s->n_inputs * sizeof(*s->inputs));
    memcpy(s->outputs, next->outputs, s->n_outputs * sizeof(*s->outputs));
    memcpy(s->reads, next->reads, s->n_inputs * sizeof(*s->reads));
    if (s->changed == NULL)
        pst_batch_fini(&s->batch);
    pstl_changed_free(s->changed);
    s->changed = changed;
    s->batch = changed->of.batch;
    s->options = next->options;
    s->has_grads = false;
}

static void send_swap_note(const struct swap *x, const char *module)
{
    const struct pst_adoption how = {old_state, old_value, NULL, (void *)x};
    struct pst_str text = {0};

    pst_str_addf(&text, "%u calls of \"%.200s\" have another module",
                 x->replaced.calls, module);
    if (x->replaced.frozen > 0)
        pst_str_addf(&text, "; %u of its parameters are frozen, as before",
                     x->replaced.frozen);
    pstl_send_note(&x->session->messages, pst_str_text(&text));
    pst_str_fini(&text);
    pst_engine_list_renewed(x->engine, x->session->engine, &how, &text);
    if (text.len > 0) {
        struct pst_str all = {0};

        pst_str_addf(&all, "another optimizer trains %s from now on",
                     pst_str_text(&text));
        pstl_send_note(&x->session->messages, pst_str_text(&all));
        pst_str_fini(&all);
    }
    pst_str_fini(&text);
}

static enum pst_status check_arguments(const penstock_session *s,
                                       const char *module, const char *path,
                                       struct pst_diag *diag)
{
    if (module == NULL || path == NULL || *path == '\0')
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "module or path is NULL or empty");
    if (s->is_half)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "penstock_forward_backward has begun a step: call "
                            "penstock_update before a swap");
    return PST_OK;
}

static void free_parts(struct swap *x)
{
    pstl_session_free_step(&x->next);
    pst_model_close(x->replaced.model);
    pst_model_close(x->replaced.module);
    pst_model_close(x->old);
    pstd_states_fini(&x->states);
    pst_str_fini(&x->said);
}

int penstock_swap(penstock_session *session, const char *module,
                  const char *path, const struct penstock_option *options,
                  size_t n_options, struct penstock_error *error)
{
    struct swap x = {.session = session, .what = {.path = module}};
    const struct pstl_collective call = {
        .name = "swap", .what = module, .phase = PST_ALIVE_LOAD};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = check_arguments(session, module, path, &diag);
    if (status == PST_OK)
        status = read_options(&x, options, n_options, &diag);
    if (status == PST_OK)
        status = make_plan(&x, path, &diag);
    status = pstl_call_settle(session, &call, status, &diag);
    if (status == PST_OK)
        status = pstl_check_same(session, "state", pst_str_text(&x.said),
                                 x.said.len, &diag);
    if (status == PST_OK)
        status = make_engine(&x, &diag);
    if (status == PST_OK) {
        send_swap_note(&x, module);
        pstl_changed_install(session, &x.next, x.changed);
        session->changes++;
    } else {
        pst_engine_free(x.engine);
        pstl_changed_free(x.changed);
    }
    free_parts(&x);
    return pstl_session_release(session, status, &diag, error);
}
