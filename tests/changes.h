// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CHANGES_H
#define PENSTOCK_TESTS_CHANGES_H
/* Differences that a pass makes, as the lines that only one of two texts has.
 */
#include "stages/base/str.h"

#include <stdbool.h>
#include <string.h>

static inline bool has_line(const char *text, const char *line, size_t n)
{
    for (; *text != '\0'; text = strchr(text, '\n') + 1)
        if (strncmp(text, line, n + 1) == 0)
            return true;
    return false;
}

/* Appends the lines of `from` that are not in `in`, each after `sign`. */
static inline void add_missing(const char *from, const char *in,
                               const char *sign, struct pst_str *out)
{
    for (const char *next; *from != '\0'; from = next) {
        const size_t n = strcspn(from, "\n");

        next = from + n + 1;
        if (!has_line(in, from, n))
            pst_str_addf(out, "%s%.*s\n", sign, (int)n, from);
    }
}

#endif
