// SPDX-License-Identifier: Apache-2.0
#include "stages/base/untrusted/json_file.h"

#include "stages/base/alloc.h"
#include "stages/base/untrusted/budget.h"

#include <string.h>

/* Heap bytes that jansson takes for an empty object, an empty array, and any
 * other value with its slot, from its structures in the heap of the C
 * library. */
#define OBJECT 256u
#define LIST   160u
#define VALUE  96u
/* Heap bytes per byte of the text. */
#define TEXT 2u

/* Estimates the maximum number of heap bytes that jansson would take. */
static uint64_t estimate_bytes(const char *text, size_t size)
{
    uint64_t bytes = (uint64_t)size * TEXT;
    bool quoted = false;

    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\') {
            i++; /* skips the escaped character */
            continue;
        }
        if (quoted) {
            quoted = text[i] != '"';
            continue;
        }
        quoted = text[i] == '"';
        bytes += text[i] == '{'   ? OBJECT
                 : text[i] == '[' ? LIST
                 : text[i] == ',' ? VALUE
                                  : 0;
    }
    return bytes;
}

enum pst_status pst_json_file_read(const char *path, size_t max, char **ret,
                                   size_t *ret_size, struct pst_diag *diag)
{
    enum pst_status status = pst_file_read(path, max, ret, ret_size, diag);
    uint64_t bytes;

    if (status != PST_OK)
        return status;
    bytes = estimate_bytes(*ret, *ret_size);
    if (bytes <= pst_budget_of(*ret_size))
        return PST_OK;
    pst_free(*ret);
    *ret = NULL;
    return pst_diag_set(diag, PST_E_FILE_TOO_LARGE,
                        "%s: its JSON of %zu bytes would become values of %llu "
                        "MiB, more than a file of that size may",
                        path, *ret_size, (unsigned long long)(bytes >> 20));
}
