// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_SETTING_H
#define PENSTOCK_DAEMON_COMMON_SETTING_H
/*
 * Settings that results depend on, as checkpoints store them: one line
 * "NAME=VALUE" each. NAME is "--OPTION", "plugin NAME", or a part of the
 * machine. Any thread.
 */
#include "stages/base/str.h"
#include "stages/split/plan.h"

/* Adds a line; a value that is long is stored as a hash. A failure is recorded
 * in the text. */
void pstd_setting_add(struct pst_str *settings, const char *name,
                      const char *value);
/* Adds lines of the plugins that the plan's operators come from. */
void pstd_setting_add_plugins(struct pst_str *settings,
                              const struct pst_plan *plan);

/* A setting whose value differs from that in the run that saved a checkpoint.
 */
struct pstd_setting_change {
    const char *name, *before, *now;
    const char *text; /* sentence for the user, with what may follow */
};

typedef void (*pstd_setting_fn)(void *ctx,
                                const struct pstd_setting_change *change);

/* Reports a change. more: end of the message, with the consequence; NULL: the
 * consequence that all settings of its kind have. change->text is ignored. */
void pstd_setting_report(const struct pstd_setting_change *change,
                         const char *more, pstd_setting_fn report, void *ctx);
/* Reports each setting whose value is another one in `before`. Settings that
 * only one text has, for instance because another version has saved it, are not
 * compared. */
void pstd_setting_compare(const char *now, const char *before,
                          pstd_setting_fn report, void *ctx);
/* Compares the plugins of the plan alone. before: settings of a checkpoint. */
void pstd_setting_compare_plugins(const struct pst_plan *plan,
                                  const char *before, pstd_setting_fn report,
                                  void *ctx);

#endif
