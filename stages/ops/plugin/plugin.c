// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/host/fs.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/plugin/check_rows.h"
#include "stages/ops/plugin/elf.h"
#include "stages/ops/plugin/row.h"

#define TAG PST_TAG_BASE

/* A plugin and its operators, in an arena of its own that is never freed. */
struct loaded {
    struct pst_plugin plugin;
    struct pst_arena arena;
    const struct penstock_plugin *given;
    struct pst_plugin_row *rows;
    struct pst_op_added *added;
    unsigned n;
};

/* Held while a plugin is added; readers of the list take no lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct pst_plugin *newest;

const struct pst_plugin *pst_plugins(void)
{
    return __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
}

const struct pst_plugin *pst_plugin_of(const struct pst_op *op)
{
    const struct pst_plugin *p =
        pst_plugin_row_of(op) != NULL ? pst_plugins() : NULL;

    while (p != NULL && strcmp(p->name, pst_op_family(op)) != 0)
        p = p->next;
    return p;
}

bool pst_plugin_has_gradient(const struct pst_op *op)
{
    const struct pst_plugin_row *row = pst_plugin_row_of(op);

    return row == NULL || row->given->gradient != NULL;
}

static const struct pst_plugin *find_plugin(const char *name)
{
    const struct pst_plugin *p = pst_plugins();

    while (p != NULL && strcmp(p->name, name) != 0)
        p = p->next;
    return p;
}

enum pst_status pst_plugin_require(const char *who, const char *name,
                                   const char *version, const char *digest,
                                   struct pst_diag *diag)
{
    const struct pst_plugin *p = find_plugin(name);

    if (p == NULL)
        return pst_diag_set(diag, PST_E_PLUGIN_MISSING,
                            "%s needs the plugin %.60s, version %.100s "
                            "(digest %.8s), which was not given",
                            who, name, version, digest);
    if (strcmp(p->digest, digest) == 0 && strcmp(p->version, version) == 0)
        return PST_OK;
    return pst_diag_set(diag, PST_E_PLUGIN_OTHER,
                        "%s was made with the plugin %.60s, version %.100s "
                        "(digest %.8s); %s has version %s (digest %.8s)",
                        who, name, version, digest,
                        p->path[0] != '\0' ? p->path : "this program",
                        p->version, p->digest);
}

/* --- adding --------------------------------------------------------------- */

static void free_loaded(struct loaded *l)
{
    struct pst_arena arena = l->arena;

    pst_arena_fini(&arena);
}

static enum pst_status make_row(struct loaded *l, unsigned i,
                                struct pst_diag *diag)
{
    struct pst_plugin_row *row = &l->rows[i];
    enum pst_status status;
    struct pst_diag why;

    row->given = pst_plugin_op_at(l->given, i);
    status =
        pst_schema_parse(row->given->schema, &l->arena, &row->schema, &why);
    if (status != PST_OK)
        return pst_diag_set(diag, PST_E_PLUGIN_SCHEMA, "%s", why.text);
    status = pst_plugin_check_schema(l->given, row->given, &row->schema, diag);
    if (status != PST_OK)
        return status;
    if (!pst_plugin_row_init(row, &l->arena))
        return pst_diag_nomem(diag, sizeof(*row));
    l->added[i] = (struct pst_op_added){
        .op = &row->op,
        .schema = &row->schema,
        .kernels = {row->kernels, (unsigned)row->given->n_kernels + 1},
        .family = l->plugin.name};
    return PST_OK;
}

static enum pst_status make_rows(struct loaded *l, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    l->n = (unsigned)l->given->n_ops;
    l->rows = pst_arena_calloc(&l->arena, l->n, sizeof(*l->rows));
    l->added = pst_arena_calloc(&l->arena, l->n, sizeof(*l->added));
    if (l->rows == NULL || l->added == NULL)
        return pst_diag_nomem(diag, l->n * sizeof(*l->rows));
    for (unsigned i = 0; i < l->n && status == PST_OK; i++)
        status = make_row(l, i, diag);
    for (unsigned i = 0; i < l->n && status == PST_OK; i++)
        if (l->rows[i].op.formula != NULL && l->rows[i].op.formula[0] != '\0')
            status = pst_formula_check(l->added, l->n, i, diag);
    return status;
}

/* Computes the digest of a plugin without a file. */
static bool digest_texts(const struct penstock_plugin *given, char ret[33])
{
    struct pst_str text = {0};
    bool good;

    pst_str_addf(&text, "%s %s\n", given->name, given->version);
    for (size_t i = 0; i < given->n_ops; i++) {
        const struct penstock_op *op = pst_plugin_op_at(given, i);

        pst_str_addf(&text, "%s\n%s\n", op->schema,
                     op->gradient != NULL ? op->gradient : "-");
        if (pst_plugin_op_flags(op) != 0)
            pst_str_addf(&text, "%u\n", pst_plugin_op_flags(op));
    }
    good = !text.failed;
    if (good)
        pst_digest(text.text, text.len, ret);
    pst_str_fini(&text);
    return good;
}

/* Makes the plugin with its operators, which are not in the registry yet. path
 * and digest are NULL if the plugin is part of the program. */
static enum pst_status make_loaded(const struct penstock_plugin *given,
                                   const char *path, const char *digest,
                                   struct loaded **ret, struct pst_diag *diag)
{
    enum pst_status status = pst_plugin_check(given, diag);
    struct pst_arena arena;
    struct loaded *l;

    if (status != PST_OK)
        return status;
    pst_arena_init(&arena, TAG);
    l = pst_arena_calloc(&arena, 1, sizeof(*l));
    if (l == NULL)
        return pst_diag_nomem(diag, sizeof(*l));
    l->arena = arena;
    l->given = given;
    l->plugin.name = pst_arena_strdup(&l->arena, given->name);
    l->plugin.version = pst_arena_strdup(&l->arena, given->version);
    l->plugin.path = pst_arena_strdup(&l->arena, path != NULL ? path : "");
    if (l->plugin.name == NULL || l->plugin.version == NULL ||
        l->plugin.path == NULL ||
        (digest == NULL && !digest_texts(given, l->plugin.digest)))
        status = pst_diag_nomem(diag, sizeof(*l));
    else
        status = make_rows(l, diag);
    if (digest != NULL)
        memcpy(l->plugin.digest, digest, sizeof(l->plugin.digest));
    if (status != PST_OK)
        free_loaded(l);
    else
        *ret = l;
    return status;
}

/* Adds the plugin unless it has been added before. The caller holds the
 * lock. */
static enum pst_status add_locked(const struct penstock_plugin *given,
                                  const char *path, const char *digest,
                                  struct pst_diag *diag)
{
    struct loaded *l = NULL;
    const struct pst_plugin *same;
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = make_loaded(given, path, digest, &l, diag);
    if (status != PST_OK)
        return status;
    same = find_plugin(l->plugin.name);
    if (same != NULL) {
        if (strcmp(same->digest, l->plugin.digest) != 0)
            status = pst_diag_set(diag, PST_E_PLUGIN_NAME,
                                  "there is another plugin %s, version %s%s%s",
                                  same->name, same->version,
                                  same->path[0] != '\0' ? ", from " : "",
                                  same->path);
        free_loaded(l);
        return status;
    }
    status = pst_registry_add(l->added, l->n, diag);
    if (status != PST_OK) {
        free_loaded(l);
        return status;
    }
    l->plugin.next = (struct pst_plugin *)newest;
    __atomic_store_n(&newest, &l->plugin, __ATOMIC_RELEASE);
    return PST_OK;
}

enum pst_status pst_plugin_add(const struct penstock_plugin *given,
                               struct pst_diag *diag)
{
    enum pst_status status;

    pthread_mutex_lock(&lock);
    status = add_locked(given, NULL, NULL, diag);
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- files ---------------------------------------------------------------- */

static bool is_loaded(const char *digest)
{
    for (const struct pst_plugin *p = pst_plugins(); p != NULL; p = p->next)
        if (p->path[0] != '\0' && strcmp(p->digest, digest) == 0)
            return true;
    return false;
}

static enum pst_status open_library(const char *path, const char *digest,
                                    struct pst_diag *diag)
{
    const struct penstock_plugin *(*describe)(void) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum pst_status status;
    void *symbol;

    // NOLINTBEGIN(concurrency-mt-unsafe): glibc's dlerror is per thread
    if (library == NULL)
        return pst_diag_set(diag, PST_E_PLUGIN_FILE,
                            "it cannot be loaded: %.500s", dlerror());
    // NOLINTEND(concurrency-mt-unsafe)
    symbol = dlsym(library, "penstock_plugin");
    if (symbol == NULL) {
        (void)dlclose(library);
        return pst_diag_set(diag, PST_E_PLUGIN_FILE,
                            "it exports no function penstock_plugin");
    }
    memcpy(&describe, &symbol, sizeof(describe));
    status = add_locked(describe(), path, digest, diag);
    if (status != PST_OK)
        (void)dlclose(library);
    return status;
}

static enum pst_status load_file(const char *path, struct pst_diag *diag)
{
    struct pst_file file = {0};
    char digest[33], *real = NULL;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status == PST_OK)
        status = pst_file_digest(&file, digest, diag);
    if (status == PST_OK)
        status = pst_plugin_check_elf(&file, diag);
    pst_file_close(&file);
    if (status != PST_OK || is_loaded(digest))
        return status;
    /* Resolves the path, since dlopen searches a name without a slash
     * elsewhere. */
    real = realpath(path, NULL);
    status = real == NULL
                 ? pst_diag_set(diag, PST_E_PLUGIN_FILE, "it has no path")
                 : open_library(real, digest, diag);
    free(real);
    return status;
}

enum pst_status pst_plugin_load(const char *path, struct pst_diag *diag)
{
    enum pst_status status;

    pthread_mutex_lock(&lock);
    status = load_file(path, diag);
    pthread_mutex_unlock(&lock);
    if (status != PST_OK)
        pst_diag_prefix(diag, "plugin %.500s", path);
    return status;
}
