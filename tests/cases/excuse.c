// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/excuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXCUSES 256

struct excuse {
    char text[512]; /* words of the line, each terminated by NUL */
    const char *tensor;
    unsigned line;
    bool used;
};

struct excuses {
    const char *path; /* borrowed */
    struct excuse at[MAX_EXCUSES];
    size_t n;
};

/* Returns false if the line is incomplete. */
static bool add_excuse(struct excuses *e, const char *line, unsigned number)
{
    struct excuse *x = &e->at[e->n];
    char *tensor, *why;

    if (line[0] == '\0' || line[0] == '#')
        return true;
    if (e->n == MAX_EXCUSES)
        return false;
    (void)snprintf(x->text, sizeof(x->text), "%s", line);
    tensor = strchr(x->text, ' ');
    why = tensor != NULL ? strchr(tensor + 1, ' ') : NULL;
    if (why == NULL || why[1] == '\0')
        return false;
    *tensor = *why = '\0';
    x->tensor = tensor + 1;
    x->line = number;
    e->n++;
    return true;
}

struct excuses *excuses_read(const char *path)
{
    struct excuses *e = calloc(1, sizeof(*e));
    FILE *file = fopen(path, "r");
    char line[512];
    unsigned number = 0;
    bool ok = e != NULL && file != NULL;

    while (ok && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        ok = add_excuse(e, line, ++number);
    }
    if (!ok) {
        (void)fprintf(stderr, "%s:%u: no case, tensor and reason\n", path,
                      number);
        free(e);
        e = NULL;
    } else {
        e->path = path;
    }
    if (file != NULL)
        (void)fclose(file);
    return e;
}

void excuses_free(struct excuses *e)
{
    free(e);
}

bool excuses_use(struct excuses *e, const char *name, const char *tensor)
{
    for (size_t i = 0; e != NULL && i < e->n; i++)
        if (strcmp(e->at[i].text, name) == 0 &&
            strcmp(e->at[i].tensor, tensor) == 0) {
            e->at[i].used = true;
            return true;
        }
    return false;
}

unsigned excuses_print_stale(const struct excuses *e)
{
    unsigned n = 0;

    for (size_t i = 0; e != NULL && i < e->n; i++)
        if (!e->at[i].used) {
            printf("STALE %s:%u: %s %s is right, or not there\n", e->path,
                   e->at[i].line, e->at[i].text, e->at[i].tensor);
            n++;
        }
    return n;
}
