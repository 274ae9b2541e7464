// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CHANGE_SETTINGS_H
#define PENSTOCK_DAEMON_EXEC_CHANGE_SETTINGS_H
/*
 * Changes options while a run goes on (penstock set), on all ranks or on none.
 * Checkpoints record changed options: for each option the line "--NAME=VALUE"
 * of the course has the new value, and a line "given --NAME=VALUE" the text
 * that the run was started with. A resume that was started with the same text
 * continues with the new value; with another text, the user has chosen a value
 * anew. Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE. Changes options. lines: "NAME=VALUE\n" for each, the same on all
 * ranks. A refusal is reported as an event; returns an error only if no rank
 * can continue. */
enum pst_status pstd_session_set(struct pstd_session *s, const char *lines,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Before a resume makes its engine: changes the options that the run of the
 * checkpoint had changed. course: the checkpoint's lines, the same on all
 * ranks; step: of the checkpoint. */
enum pst_status pstd_settings_restore(struct pstd_session *s,
                                      const char *course, uint64_t step,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if a checkpoint with this course records changed options. */
bool pstd_settings_has_changes(const char *course);
/* Appends the lines of changed options to the course of the run. */
void pstd_settings_add(const struct pstd_session *s, struct pst_str *course);

#endif
