// SPDX-License-Identifier: Apache-2.0
/* Operators that are known and intentionally have no row. */
#include "stages/ops/core/op.h"

#include "stages/base/str.h"

#include <string.h>

static const struct {
    const char *reason, *names;
} refused[] = {
#define PST_REFUSED(reason, names) {reason, names},
#include "stages/ops/core/refused.def"
#undef PST_REFUSED
};

/* True if the word of n > 0 characters is in the list. */
static bool has_word(const char *list, const char *word, size_t n)
{
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static const char *find_reason(const char *word)
{
    for (size_t i = 0; i < PST_COUNT(refused) && word[0] != '\0'; i++)
        if (has_word(refused[i].names, word, strlen(word)))
            return refused[i].reason;
    return NULL;
}

const char *pst_op_refusal(const char *name)
{
    char word[128];
    const char *dot;
    size_t n;

    if (pst_has_prefix(name, "prims."))
        return "prims IR is not accepted";
    if (pst_has_prefix(name, "aten."))
        name += strlen("aten.");
    if (strlen(name) >= sizeof(word))
        return NULL;
    if (find_reason(name) != NULL)
        return find_reason(name);
    dot = strrchr(name, '.');
    n = dot != NULL ? (size_t)(dot - name) : strlen(name);
    memcpy(word, name, n);
    word[n] = '\0';
    if (find_reason(word) != NULL)
        return find_reason(word);
    if (n > 1 &&
        word[n - 1] ==
            '_') { /* an in-place variant is refused with its functional one */
        word[n - 1] = '\0';
        return find_reason(word);
    }
    return NULL;
}
