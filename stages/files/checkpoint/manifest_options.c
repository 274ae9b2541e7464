// SPDX-License-Identifier: Apache-2.0
/* Reads and writes "options" of a manifest: an object of strings. */
#include <stdio.h>
#include <string.h>

#include "stages/files/checkpoint/manifest.h"

#define MAX_NAME 64

/* Reads the options into info->options; leaves out those that do not fit
 * there. */
bool pst_manifest_read_options(struct pst_checkpoint_info *info, json_t *table)
{
    const char *name;
    json_t *value;
    size_t at = 0;

    info->options[0] = '\0';
    if (table != NULL && !json_is_object(table))
        return false;
    json_object_foreach(table, name, value)
    {
        const char *text = json_string_value(value);
        const size_t left = sizeof(info->options) - at;

        if (text == NULL)
            return false;
        if (strlen(name) >= MAX_NAME || strpbrk(name, "=\n") != NULL ||
            strchr(text, '\n') != NULL ||
            strlen(name) + strlen(text) + 3 > left)
            continue;
        at += (size_t)snprintf(info->options + at, left, "%s=%s\n", name, text);
    }
    return true;
}

json_t *pst_manifest_make_options(const struct pst_checkpoint_info *info)
{
    const char *at = info->options;
    json_t *table = json_object();

    while (table != NULL && *at != '\0') {
        const size_t n = strcspn(at, "\n"), name = strcspn(at, "=");
        char key[MAX_NAME];
        /* The last line may have been truncated. */
        json_t *value = at[n] == '\n' && name < n && name < sizeof(key)
                            ? json_stringn(at + name + 1, n - name - 1)
                            : NULL; /* NULL also if it is not UTF-8 */

        snprintf(key, sizeof(key), "%.*s", (int)name, at);
        if (value != NULL && json_object_set_new(table, key, value) != 0) {
            json_decref(table);
            return NULL;
        }
        at += n + (at[n] != '\0');
    }
    return table;
}
