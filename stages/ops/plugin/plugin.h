// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_PLUGIN_H
#define PENSTOCK_STAGES_OPS_PLUGIN_PLUGIN_H
/*
 * Plugins: operators that a shared library or the program itself adds to the
 * registry (include/penstock_plugin.h). They stay until the process ends. Any
 * thread.
 */
#include "stages/base/str.h"
#include "stages/ops/core/op.h"

struct penstock_plugin;

/* A plugin that this process has. */
struct pst_plugin {
    const char *name, *version;
    /* XXH3-128 of the file; of a plugin that is part of the program: of its
     * schemas and gradients. */
    char digest[33];
    const char *path; /* "": part of the program */
    struct pst_plugin *next;
};

/* Loads a shared library and adds its operators. Does nothing if a file of the
 * same content is loaded; another plugin of that name is refused. The library
 * runs code of its own. */
enum pst_status pst_plugin_load(const char *path,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Adds the operators of a plugin that is part of the program, and remains valid
 * and unchanged. Adding it again does nothing. */
enum pst_status pst_plugin_add(const struct penstock_plugin *given,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the newest plugin; `next` leads to the others. NULL: none. */
const struct pst_plugin *pst_plugins(void);
/* Returns the plugin of an operator; NULL if it is not a plugin's. */
const struct pst_plugin *pst_plugin_of(const struct pst_op *op);
/* False if the operator is a plugin's that states no gradient: training through
 * it is refused. */
bool pst_plugin_has_gradient(const struct pst_op *op);
/* Checks that this process has a plugin, with that version and digest. who:
 * what needs it, "the plan". PST_E_PLUGIN_MISSING, PST_E_PLUGIN_OTHER. */
enum pst_status pst_plugin_require(const char *who, const char *name,
                                   const char *version, const char *digest,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
