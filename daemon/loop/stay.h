// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_STAY_H
#define PENSTOCK_DAEMON_LOOP_STAY_H
/*
 * Restart of a job that stays (--stay): its current run is described in a file
 * (--kept-run), and a start that finds text in it continues the run from its
 * newest checkpoint. The file is memory of the supervisor, so that neither a
 * full disk nor a program that cleans /tmp makes the job forget its run. After
 * three such starts in a row without a newer checkpoint the run is given up,
 * and the job waits for another run. Rank 0 only; in other jobs these functions
 * do nothing. Loop thread.
 */
#include "daemon/loop/daemon.h"

/* Call before a run begins: writes its description. options: those given for
 * the run, "name\0value\0..."; config: all options; id: that of the run. After
 * an error the run must not begin. A file that cannot be written is reported,
 * but is no error: the run is then not continued by a restart. */
enum pst_status pstd_stay_write(struct pstd_daemon *d,
                                const struct pstd_config *config,
                                const struct pst_str *options, const char *id,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the options for continuing an unfinished run. *ret_any: there is such a
 * run; ret_id: its id, which it keeps; *ret_step: step of the checkpoint from
 * which it continues; *ret_tries: number of starts from that checkpoint,
 * including this one. An error: the run is given up. The caller frees options
 * in any case. */
enum pst_status pstd_stay_next(struct pstd_daemon *d, bool *ret_any,
                               struct pst_str *options,
                               char ret_id[PSTD_RUN_ID], uint64_t *ret_step,
                               unsigned *ret_tries,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Call when the run has reached its first step: records that in the file. */
void pstd_stay_record_begin(struct pstd_daemon *d);
/* Call when the run has saved a checkpoint: records that the run has
 * checkpoints. */
void pstd_stay_record_save(struct pstd_daemon *d, uint64_t step);
/* Call when the run is over, successful or not: empties the file. */
void pstd_stay_remove(const struct pstd_daemon *d);

#endif
