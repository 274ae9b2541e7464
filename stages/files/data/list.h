// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_LIST_H
#define PENSTOCK_STAGES_FILES_DATA_LIST_H
/*
 * Names of data files, as --data takes them: ITEM[,ITEM...]. An item is a file
 * or a pattern of glob(7), whose files are sorted by name. Without weights all
 * files, in this order, are one source. An index of safetensors shards is one
 * file, whose tensors are in several. If each item has a weight
 * ("web-*.bin:0.7,code.bin:0.3"), each item is a source, from which samples are
 * drawn in proportion to its weight.
 *
 * A text, or an item, that is the name of an existing file is that file,
 * whatever characters it has. Any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"
#include "stages/files/data/position.h"

#include <stdbool.h>

/* Suffix of an index that names shards of tensors, as on model hubs. */
#define PST_DATA_SHARD_INDEX ".safetensors.index.json"
/* maximum number of files, of all sources together */
#define PST_DATA_MAX_FILES 4096

struct pst_str;

struct pst_data_item {
    const char
        *text;     /* without weight; the whole text if there are no weights */
    double weight; /* 1 if there are no weights */
    size_t first, n; /* its files, at least one */
};

struct pst_data_list {
    struct pst_arena arena;
    struct pst_data_item sources[PST_DATA_MAX_SOURCES];
    unsigned n; /* number of sources, at least 1 */
    bool weighted;
    struct PST_VEC(const char *) files; /* files of all sources, in order */
};

/* Reads the text and finds the files of its patterns; files without a pattern
 * need not exist. PST_E_DATA_LIST: an empty item, a weight that is no number of
 * 0 or more, weights for some items only or all 0, a pattern without a file,
 * too many items or files. To be freed with pst_data_list_fini unless it fails.
 */
enum pst_status pst_data_list_read(const char *text, struct pst_data_list *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_data_list_fini(struct pst_data_list *list);
/* Finds the files that match one pattern, sorted by name; the list is one
 * source without a weight. PST_E_DATA_LIST: no file matches, or too many. To be
 * freed with pst_data_list_fini unless it fails. */
enum pst_status pst_data_list_match(const char *pattern,
                                    struct pst_data_list *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True for a pattern of glob(7) that is not the name of an existing file. */
bool pst_data_list_is_pattern(const char *text);
/* True for names of files of tensors: *.safetensors, or an index of them
 * (stages/files/given.h). */
bool pst_data_has_tensors(const char *path);
/* True if the first item names tensors, not tokens. */
bool pst_data_list_has_tensors(const char *text);
/* Appends the text with the working directory before every relative name. */
void pst_data_list_add_absolute(const char *text, const char *directory,
                                struct pst_str *out);

#endif
