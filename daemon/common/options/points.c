// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/options/points.h"

#include <string.h>

#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#define MAX_BYTES ((size_t)1 << 20)

/* Appends the point of a line of n bytes, if it has one. False: the line has
 * more than one. */
static bool add_line(const char *line, size_t n, struct pst_str *out)
{
    const char *const blanks = " \t\r";
    size_t end;

    n = strcspn(line, "#\n") < n ? strcspn(line, "#\n") : n;
    while (n > 0 && strchr(blanks, line[0]) != NULL) {
        line++;
        n--;
    }
    while (n > 0 && strchr(blanks, line[n - 1]) != NULL)
        n--;
    end = strcspn(line, ", \t\r\n#");
    if (n == 0)
        return true;
    pst_str_add(out, out->len > 0 ? "," : "");
    pst_str_addn(out, line, n);
    return end >= n;
}

enum pst_status pstd_points_read(const char *who, const char *text,
                                 struct pst_arena *arena, const char **ret,
                                 struct pst_diag *diag)
{
    struct pst_str points = {0};
    char *file = NULL;
    size_t size = 0, line = 0;
    enum pst_status status = PST_OK;

    if (text[0] == '@')
        status = pst_file_read(text + 1, MAX_BYTES, &file, &size, diag);
    else
        pst_str_add(&points, text);
    for (const char *at = file;
         status == PST_OK && at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, "\n");

        line++;
        if (!add_line(at, n, &points))
            status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                                  "%s: line %zu of %s is not UPDATE=X", who,
                                  line, text + 1);
        at += n + (at[n] == '\n');
    }
    if (status == PST_OK && points.len == 0 && !points.failed)
        status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "%s: there are no points in \"%s\"", who, text);
    if (status == PST_OK) {
        *ret = points.failed ? NULL : pst_arena_strdup(arena, points.text);
        status = *ret != NULL ? PST_OK : pst_diag_nomem(diag, points.len);
    }
    pst_str_fini(&points);
    pst_free(file);
    return status;
}
