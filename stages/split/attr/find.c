// SPDX-License-Identifier: Apache-2.0
/* Finds tensors of a plan's state by name. */
#include "stages/split/attr/attr.h"

#include <string.h>

#define TAG PST_TAG_PLAN

struct finder {
    const struct pst_plan *plan;
    const char *name;
    struct pst_attrs *ret;
    struct pst_diag *diag;
};

static bool is_below(const char *name, const char *module)
{
    const size_t n = strlen(module);

    return n == 0 || (strncmp(name, module, n) == 0 && name[n] == '.');
}

typedef bool (*wanted_fn)(const char *name, const char *wanted);

static bool equals(const char *name, const char *wanted)
{
    return strcmp(name, wanted) == 0;
}

static enum pst_status add_param(struct finder *f, unsigned i, wanted_fn wanted)
{
    const struct pst_plan_param *param = &f->plan->params.at[i];
    const size_t before = f->ret->at.n;
    bool pushed = true;

    for (unsigned k = param->nameless ? 1 : 0;
         k <= param->n_aliases + param->n_windows && pushed; k++) {
        struct pst_attr a = {.name = param->fqn, .param = i};

        if (k > param->n_aliases)
            a.window = &param->windows[k - 1 - param->n_aliases];
        if (a.window != NULL)
            a.name = a.window->fqn;
        else if (k > 0)
            a.name = param->aliases[k - 1];
        if (wanted(a.name, f->name))
            pushed = pst_vec_push(TAG, &f->ret->at, a);
    }
    f->ret->tensors += f->ret->at.n > before;
    return pushed ? PST_OK : pst_diag_nomem(f->diag, sizeof(struct pst_attr));
}

static bool is_window(const struct pst_plan_param *param, const char *name)
{
    for (unsigned k = 0; k < param->n_windows; k++)
        if (strcmp(param->windows[k].fqn, name) == 0)
            return true;
    return false;
}

static enum pst_status report_no_match(const struct finder *f)
{
    const struct pst_map *all = &f->plan->names;
    const char **names = pst_calloc(TAG, all->n + 1, sizeof(*names));
    int near;

    if (names == NULL)
        return pst_diag_nomem(f->diag, all->n * sizeof(*names));
    for (size_t i = 0; i < all->n; i++)
        names[i] = all->entries[i].key;
    near = pst_nearest(f->name, names, all->n);
    (void)pst_diag_set(f->diag, PST_E_MODULE_UNKNOWN,
                       "the model has no tensor \"%.200s\", and no module of "
                       "that name with any%s%.200s%s",
                       f->name, near < 0 ? "" : "; the nearest name is \"",
                       near < 0 ? "" : names[near], near < 0 ? "" : "\"");
    pst_free(names);
    return PST_ERR_INPUT;
}

enum pst_status pst_attrs_find(const struct pst_plan *plan, const char *name,
                               struct pst_attrs *ret, struct pst_diag *diag)
{
    struct finder f = {plan, name, ret, diag};
    const int index = pst_plan_find_param(plan, name);
    enum pst_status status = PST_OK;

    *ret = (struct pst_attrs){.tensors = 0};
    if (index >= 0 && (!plan->params.at[index].nameless ||
                       is_window(&plan->params.at[index], name)))
        return add_param(&f, (unsigned)index, equals);
    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++)
        if (plan->params.at[i].kind != PST_VALUE_CONST)
            status = add_param(&f, i, is_below);
    if (status == PST_OK && ret->at.n == 0)
        status = report_no_match(&f);
    if (status != PST_OK)
        pst_attrs_fini(ret);
    return status;
}

void pst_attrs_fini(struct pst_attrs *attrs)
{
    pst_vec_fini(&attrs->at);
    attrs->tensors = 0;
}

struct pst_meta pst_attr_meta(const struct pst_plan *plan,
                              const struct pst_attr *attr)
{
    struct pst_meta ret = attr->window != NULL
                              ? attr->window->meta
                              : plan->params.at[attr->param].meta;

    pst_meta_set_contiguous(&ret);
    return ret;
}

size_t pst_attrs_capacity(const struct pst_plan *plan,
                          const struct pst_attrs *attrs, unsigned param)
{
    size_t bytes = pst_meta_bytes(&plan->params.at[param].meta);

    for (size_t i = 0; i < attrs->at.n; i++) {
        const struct pst_meta meta = pst_attr_meta(plan, &attrs->at.at[i]);

        if (attrs->at.at[i].param == param)
            bytes = PST_MAX(bytes, pst_meta_bytes(&meta));
    }
    return bytes;
}

void pst_attr_copy_part(const struct pst_plan *plan,
                        const struct pst_attr *attr, const void *all, void *dst)
{
    const struct pst_meta to = pst_attr_meta(plan, attr);
    const size_t item = pst_dtype_size(to.dtype);

    if (attr->window == NULL)
        memcpy(dst, all, pst_meta_bytes(&to));
    else
        pst_copy_strided(
            &attr->window->meta,
            (const char *)all + (size_t)attr->window->offset * item, &to, dst);
}
