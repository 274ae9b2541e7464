// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_OPTIONS_SETS_H
#define PENSTOCK_DAEMON_COMMON_OPTIONS_SETS_H
/*
 * Named lists of data files, as --eval-data takes them: "FILES", which is one
 * set without a name, or "NAME=FILES", once for each set. The value of the
 * option joins them: "web=web.bin;code=code.bin". A text of the form
 * NAME=FILES that is the name of an existing file counts as FILES. Any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"

#include <stdbool.h>

struct pst_str;

#define PSTD_MAX_SETS 16
#define PSTD_SET_NAME 32 /* longest name, in bytes */

struct pstd_set {
    char name[PSTD_SET_NAME + 1]; /* "": the only set, which has no name */
    const char *files;            /* as stages/files/data/list.h reads it */
};
struct pstd_sets {
    unsigned n;
    struct pstd_set at[PSTD_MAX_SETS];
};

/* Reads the value of the option; texts are copied to the arena. who: the option
 * as the user wrote it, for messages. PST_E_OPTION_VALUE: a set without files,
 * sets of which only some have names, too many, or a name that is too long. A
 * later set of a name replaces an earlier one. */
enum pst_status pstd_sets_read(const char *who, const char *text,
                               struct pst_arena *arena, struct pstd_sets *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Function called for each set. An error ends pstd_sets_each. */
typedef enum pst_status (*pstd_set_fn)(void *ctx, const struct pstd_set *set,
                                       struct pst_diag *diag);
/* Reads the value of the option and calls take(ctx, set, diag) for each set,
 * which is valid during the call. */
enum pst_status pstd_sets_each(const char *who, const char *text,
                               pstd_set_fn take, void *ctx,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Reads `more` after `before` (NULL: nothing), and sets *ret to the value that
 * joins them, in the arena. Without names, `more` replaces `before`. */
enum pst_status pstd_sets_join(const char *who, const char *before,
                               const char *more, struct pst_arena *arena,
                               const char **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Appends the value with the working directory before every relative name. */
void pstd_sets_add_absolute(const char *text, const char *directory,
                            struct pst_str *out);

#endif
