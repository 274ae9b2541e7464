// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SCHED_GOLDEN_H
#define PENSTOCK_TESTS_SCHED_GOLDEN_H
/* Reads tests/data/schedules.tar.xz, PyTorch's results for schedules. */
#include "stages/sched/generate.h"
#include "tests/sched/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

static const char *folder; /* set by main */

/* --- text --------------------------------------------------------------- */

static inline char *read_file(const char *name)
{
    char path[512], *text = NULL;
    FILE *file;
    long size;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    assert_non_null(file);
    (void)fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = '\0';
    (void)fclose(file);
    return text;
}

/* Terminates and returns the next line of the text; NULL at the end. */
static inline char *next_line(char **at)
{
    char *line = *at, *end;

    if (!line || !*line)
        return NULL;
    end = strchr(line, '\n');
    *at = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return line;
}

static inline int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts consecutive RESHARDs, which are in the order of a hash set. */
static inline void sort_reshards(struct pst_str *line)
{
    char *copy = strdup(pst_str_text(line)), *save = NULL;
    char *run[64];
    size_t n = 0;
    struct pst_str out = {0};

    for (char *word = strtok_r(copy, " ", &save); word || n;
         word = word ? strtok_r(NULL, " ", &save) : NULL) {
        const bool reshard = word && strstr(word, "RESHARD");

        if (reshard) {
            assert_in_range(n, 0, 63);
            run[n++] = word;
            continue;
        }
        qsort(run, n, sizeof(*run), compare_words);
        for (size_t i = 0; i < n; i++)
            pst_str_addf(&out, "%s%s", out.len ? " " : "", run[i]);
        n = 0;
        if (word)
            pst_str_addf(&out, "%s%s", out.len ? " " : "", word);
    }
    free(copy);
    pst_str_fini(line);
    *line = out;
}

static inline void print_rank(const struct pst_schedule *s, unsigned r,
                              struct pst_str *out)
{
    pst_actions_print(s->ranks[r].at, s->ranks[r].n, " ", out);
}

static inline struct pst_schedule *make(const char *name, unsigned ranks,
                                        unsigned stages, unsigned n, bool idle)
{
    const struct pst_schedule_options o = {.name = name,
                                           .ranks = ranks,
                                           .stages = stages,
                                           .microbatches = n,
                                           .train = true,
                                           .exact = true,
                                           .idle = idle};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;

    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    return s;
}

#endif
