// SPDX-License-Identifier: Apache-2.0
/* Opens models. */
#include <string.h>

#include "daemon/common/plugins.h"
#include "daemon/common/setup.h"
#include "lib/object.h"
#include "stages/base/alloc.h"
#include "stages/ops/core/op.h"

#define TAG PST_TAG_CLIENT

static bool add_tensor(penstock_model *m, enum penstock_kind kind,
                       const struct pstl_tensor *tensor)
{
    return pst_vec_push(TAG, &m->tensors[kind], *tensor);
}

static enum pst_status list_inputs(penstock_model *m, const struct pst_plan *p,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < p->inputs.n; i++)
        if (!add_tensor(
                m, PENSTOCK_INPUT,
                &(struct pstl_tensor){.name = p->inputs.at[i].name,
                                      .meta = p->inputs.at[i].meta,
                                      .batch_dim = p->inputs.at[i].chunk,
                                      .index = (unsigned)i}))
            return pst_diag_nomem(diag, p->inputs.n);
    return PST_OK;
}

static enum pst_status list_outputs(penstock_model *m, const struct pst_plan *p,
                                    struct pst_diag *diag)
{
    for (size_t i = 0; i < p->outputs.n; i++) {
        struct pstl_tensor t = {.name = p->outputs.at[i].path,
                                .meta = p->outputs.at[i].meta,
                                .index = (unsigned)i};
        enum pst_status status;
        unsigned dim;

        if (!p->outputs.at[i].is_tensor)
            continue;
        status = pst_plan_output_dim(p, i, &dim, NULL, diag);
        if (status != PST_OK)
            return status;
        t.batch_dim = (int)dim;
        if (!add_tensor(m, PENSTOCK_OUTPUT, &t))
            return pst_diag_nomem(diag, p->outputs.n);
    }
    return PST_OK;
}

enum pst_status pstl_list_state(const struct pst_plan *p,
                                struct pstl_tensors *params,
                                struct pstl_tensors *buffers,
                                struct pst_diag *diag)
{
    for (size_t i = 0; i < p->params.n; i++) {
        const struct pst_plan_param *param = &p->params.at[i];
        const bool is_param = param->kind == PST_VALUE_PARAM;
        const struct pstl_tensor t = {
            .name = param->fqn,
            .meta = param->meta,
            .is_complex = param->is_complex,
            .trained = is_param && param->requires_grad && param->n_stages > 0,
            .batch_dim = -1,
            .index = (unsigned)i};

        if ((!is_param && param->kind != PST_VALUE_BUFFER) || param->nameless)
            continue;
        if (!pst_vec_push(TAG, is_param ? params : buffers, t))
            return pst_diag_nomem(diag, p->params.n);
    }
    return PST_OK;
}

static enum pst_status open_model(penstock_model *m, const char *path,
                                  const struct penstock_open_config *c,
                                  struct pst_diag *diag)
{
    struct pst_batch batch = {0};
    enum pst_status status = pstd_config_init(&m->config, diag);

    if (status == PST_OK)
        status = pstl_options_set(&m->config, PSTL_OPEN, c->options,
                                  c->n_options, diag);
    if (status == PST_OK)
        status = pstd_plugins_load(&m->config, diag);
    if (status == PST_OK)
        status = pstd_plan_open(path, &m->config, &m->opened, diag);
    /* The batch of a session without options, which shows how inputs are
     * divided. */
    if (status == PST_OK)
        status = pstd_open_batch(&m->config, m->opened.plan, &batch, diag);
    if (status == PST_OK) {
        pst_batch_fini(&batch);
        status = list_inputs(m, m->opened.plan, diag);
    }
    if (status == PST_OK)
        status = list_outputs(m, m->opened.plan, diag);
    if (status == PST_OK)
        status =
            pstl_list_state(m->opened.plan, &m->tensors[PENSTOCK_PARAMETER],
                            &m->tensors[PENSTOCK_BUFFER], diag);
    if (status == PST_OK)
        status = pstl_modules_new(m->opened.plan, &m->modules, diag);
    return status;
}

static void free_model(penstock_model *m)
{
    for (size_t i = 0; i < PST_COUNT(m->tensors); i++)
        pst_vec_fini(&m->tensors[i]);
    pstl_modules_free(m->modules);
    pstd_plan_close(&m->opened);
    pstd_config_fini(&m->config);
    pst_free(m);
    pst_registry_release();
}

int penstock_open(const char *path, const struct penstock_open_config *config,
                  penstock_model **ret, struct penstock_error *error)
{
    struct penstock_open_config c;
    penstock_model *m = NULL;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_read_struct("struct penstock_open_config", config, &c,
                              sizeof(c), &diag);
    if (status == PST_OK && (path == NULL || ret == NULL))
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "%s is NULL",
                              path == NULL ? "path" : "ret");
    if (status == PST_OK) {
        m = pst_calloc(TAG, 1, sizeof(*m));
        status = m == NULL ? pst_diag_nomem(&diag, sizeof(*m))
                           : pst_registry_hold(&diag);
    }
    if (status != PST_OK) {
        pst_free(m);
        return pstl_return(status, &diag, error);
    }
    m->messages = (struct pstl_messages){c.message, c.message_ctx};
    pstl_receive_log(&m->messages);
    status = open_model(m, path, &c, &diag);
    pstl_receive_log(NULL);
    if (status != PST_OK) {
        free_model(m);
        return pstl_return(status, &diag, error);
    }
    pstl_send_plan_notes(&m->messages, m->opened.plan);
    *ret = m;
    return 0;
}

void penstock_close(penstock_model *model)
{
    if (model != NULL)
        free_model(model);
}

/* --- descriptions --------------------------------------------------------- */

static bool is_kind(enum penstock_kind kind)
{
    return (unsigned)kind < PSTL_N_KINDS;
}

size_t penstock_count(const penstock_model *model, enum penstock_kind kind)
{
    return model != NULL && is_kind(kind) ? model->tensors[kind].n : 0;
}

int pstl_describe(const struct pstl_tensor *tensors, size_t n, size_t index,
                  struct penstock_info *ret, struct penstock_error *error)
{
    struct penstock_info info = {.size = sizeof(info)};
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_check_struct("ret", ret, &diag);
    if (status == PST_OK && index >= n)
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                              "there are %zu tensors of that kind, and no "
                              "number %zu",
                              n, index);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    info.name = tensors[index].name;
    info.dtype = pstl_dtype(&tensors[index]);
    info.ndim = pstl_ndim(&tensors[index]);
    info.shape = tensors[index].meta.size;
    info.batch_dim = tensors[index].batch_dim;
    info.trained = tensors[index].trained;
    pstl_write_struct(&info, ret, sizeof(info));
    return 0;
}

int penstock_describe(const penstock_model *model, enum penstock_kind kind,
                      size_t index, struct penstock_info *ret,
                      struct penstock_error *error)
{
    const size_t n = penstock_count(model, kind);

    return pstl_describe(n > 0 ? model->tensors[kind].at : NULL, n, index, ret,
                         error);
}

/* True if the tensor has that name. */
static bool is_named(const penstock_model *m, enum penstock_kind kind,
                     const struct pstl_tensor *t, const char *name)
{
    const struct pst_plan *plan = m->opened.plan;

    return strcmp(t->name, name) == 0 ||
           (kind >= PENSTOCK_PARAMETER &&
            pst_plan_find_param(plan, name) == (int)t->index);
}

int penstock_find(const penstock_model *model, enum penstock_kind kind,
                  const char *name, size_t *ret, struct penstock_error *error)
{
    const size_t n = penstock_count(model, kind);
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (model == NULL || name == NULL || ret == NULL || !is_kind(kind))
        return pstl_return(pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                                        "model, name or ret is NULL, or there "
                                        "is no such kind"),
                           &diag, error);
    for (size_t i = 0; i < n; i++)
        if (is_named(model, kind, &model->tensors[kind].at[i], name)) {
            *ret = i;
            return 0;
        }
    return pstl_return(pst_diag_set(&diag, PST_E_LIBRARY_NAME,
                                    "the model has no tensor '%.200s' of that "
                                    "kind",
                                    name),
                       &diag, error);
}
