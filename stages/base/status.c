// SPDX-License-Identifier: Apache-2.0
#include "stages/base/status.h"

struct row {
    enum pst_status status;
    int exit_code;
    const char *name, *text;
};

static const struct row rows[] = {
#define ROW(name, value, exit_code, text)                                      \
    {PST_##name, (exit_code), #name, (text)},
    PST_STATUS_LIST(ROW)
#undef ROW
};

/* Finds the row of a status; for unknown values the last row, ERR_INTERNAL. */
static const struct row *find_row(enum pst_status status)
{
    size_t i = 0;

    while (i < PST_COUNT(rows) - 1 && rows[i].status != status)
        i++;
    return &rows[i];
}

const char *pst_status_name(enum pst_status status)
{
    return find_row(status)->name;
}

const char *pst_status_text(enum pst_status status)
{
    return find_row(status)->text;
}

int pst_status_exit_code(enum pst_status status)
{
    return find_row(status)->exit_code;
}
