// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/fault.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "stages/base/str.h"
#include "stages/graph/graph.h"
#include "stages/graph/schema.h"

static const char *const texts[PST_N_FAULTS] = {
#define X(code, text) [PST_FAULT_##code] = text,
#include "stages/ops/core/fault.def"
#undef X
};

static struct {
    pthread_mutex_t lock;
    char texts[256][240];
    uint64_t n;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

int64_t pst_fault_keep_text(const char *text)
{
    uint64_t i;

    pthread_mutex_lock(&kept.lock);
    i = kept.n++ % PST_COUNT(kept.texts);
    (void)snprintf(kept.texts[i], sizeof(kept.texts[i]), "%s", text);
    pthread_mutex_unlock(&kept.lock);
    return (int64_t)i;
}

static void add_kept(int64_t i, struct pst_str *out)
{
    pthread_mutex_lock(&kept.lock);
    if (i >= 0 && i < (int64_t)PST_COUNT(kept.texts))
        pst_str_add(out, kept.texts[i]);
    pthread_mutex_unlock(&kept.lock);
}

/* Returns the operator's first non-empty text argument, else its name. */
static const char *string_of(const struct pst_node *node)
{
    if (node == NULL)
        return "the operator";
    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (node->args[i].kind == PST_ARG_STRING && node->args[i].s[0] != '\0')
            return node->args[i].s;
    return pst_node_origin(node);
}

void pst_fault_describe(const struct pst_fault *fault,
                        const struct pst_node *node, char *text, size_t size)
{
    struct pst_str out = {0};
    unsigned next = 0;

    for (const char *p = fault->code < PST_N_FAULTS ? texts[fault->code]
                                                    : "unknown fault";
         *p != '\0'; p++) {
        const union pst_fault_number *number =
            &fault->numbers[PST_MIN(next, PST_FAULT_NUMBERS - 1)];

        if (*p != '%') {
            pst_str_addf(&out, "%c", *p);
            continue;
        }
        p++;
        if (*p == 's')
            pst_str_add(&out, string_of(node));
        else if (*p == 't')
            add_kept(number->i, &out);
        else if (*p == 'i')
            pst_str_addf(&out, "%" PRId64, number->i);
        else
            pst_str_addf(&out, "%g", number->g);
        next += *p != 's';
    }
    (void)snprintf(text, size, "%s", pst_str_text(&out));
    pst_str_fini(&out);
}
