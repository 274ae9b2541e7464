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

/* A plugin that has been added to this process. */
struct pst_plugin {
    const char *name, *version;
    /* XXH3-128 of the file or, for a plugin that is part of the program, of its
     * schemas and gradients. */
    char digest[33];
    const char *path; /* "": part of the program */
    struct pst_plugin *next;
};

/* Loads a shared library and adds its operators. Does nothing if a file with
 * the same content is loaded; refuses another plugin with the same name.
 * Loading runs the library's own code. */
enum pst_status pst_plugin_load(const char *path,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Adds the operators of a plugin that is part of the program; *given must stay
 * valid and unchanged. Adding it again does nothing. */
enum pst_status pst_plugin_add(const struct penstock_plugin *given,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the newest plugin; `next` leads to the others. NULL: none. */
const struct pst_plugin *pst_plugins(void);
/* Returns the plugin that defines an operator; NULL: no plugin does. */
const struct pst_plugin *pst_plugin_of(const struct pst_op *op);
/* False if a plugin defines the operator without a gradient, so that training
 * through it is refused. */
bool pst_plugin_has_gradient(const struct pst_op *op);
/* Checks that this process has the plugin `name` with this version and digest.
 * who: the object that needs the plugin, such as "the plan".
 * PST_E_PLUGIN_MISSING, PST_E_PLUGIN_OTHER. */
enum pst_status pst_plugin_require(const char *who, const char *name,
                                   const char *version, const char *digest,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
