// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/setting.h"

#include <stdio.h>
#include <string.h>

#include "stages/ops/plugin/plugin.h"

#define MAX_VALUE 80 /* in bytes; a longer value is stored as a hash */

void pstd_setting_add(struct pst_str *settings, const char *name,
                      const char *value)
{
    const size_t n = strlen(value);

    if (n <= MAX_VALUE && strchr(value, '\n') == NULL)
        pst_str_addf(settings, "%s=%s\n", name, value);
    else
        pst_str_addf(settings, "%s=%zu bytes, hash %016llx\n", name, n,
                     (unsigned long long)pst_hash(value, n, 0));
}

void pstd_setting_add_plugins(struct pst_str *settings,
                              const struct pst_plan *plan)
{
    for (const struct pst_plugin *p = pst_plugins(); p != NULL; p = p->next) {
        struct pst_str name = {0}, value = {0};

        if (!pst_plan_has_plugin(plan, p))
            continue;
        pst_str_addf(&name, "plugin %s", p->name);
        pst_str_addf(&value, "%s, digest %.16s", p->version, p->digest);
        pstd_setting_add(settings, pst_str_text(&name), pst_str_text(&value));
        pst_str_fini(&name);
        pst_str_fini(&value);
    }
}

/* Finds the line of a setting in `settings`, and copies the text after its '='
 * to value. line: text that begins with the setting's name, of `name` bytes. */
static bool find_line(const char *settings, const char *line, size_t name,
                      char value[MAX_VALUE + 1])
{
    for (const char *at = settings; *at != '\0';) {
        const size_t n = strcspn(at, "\n");

        if (n > name && strncmp(at, line, name + 1) == 0) {
            (void)snprintf(value, MAX_VALUE + 1, "%.*s", (int)(n - name - 1),
                           at + name + 1);
            return true;
        }
        at += n + (at[n] != '\0');
    }
    return false;
}

/* Returns the end of a message: the consequence of a change of this setting. */
static const char *consequence_of(const char *name)
{
    if (name[0] == '-')
        return "";
    return pst_has_prefix(name, "plugin ")
               ? ": its operators may compute something else"
               : ": numbers may differ in their last bits";
}

void pstd_setting_report(const struct pstd_setting_change *change,
                         const char *more, pstd_setting_fn report, void *ctx)
{
    struct pstd_setting_change c = *change;
    char text[640];

    (void)snprintf(text, sizeof(text),
                   "%s was %s in the run that saved this checkpoint, and is %s "
                   "now%s",
                   c.name, c.before, c.now,
                   more != NULL ? more : consequence_of(c.name));
    c.text = text;
    report(ctx, &c);
}

void pstd_setting_compare(const char *now, const char *before,
                          pstd_setting_fn report, void *ctx)
{
    for (const char *at = now; *at != '\0';) {
        const size_t n = strcspn(at, "\n"), name = strcspn(at, "=");
        char was[MAX_VALUE + 1], is[MAX_VALUE + 1], text[80];
        const struct pstd_setting_change change = {
            .name = text, .before = was, .now = is};

        (void)snprintf(text, sizeof(text), "%.*s", (int)name, at);
        if (name < n && find_line(at, at, name, is) &&
            find_line(before, at, name, was) && strcmp(was, is) != 0)
            pstd_setting_report(&change, NULL, report, ctx);
        at += n + (at[n] != '\0');
    }
}

void pstd_setting_compare_plugins(const struct pst_plan *plan,
                                  const char *before, pstd_setting_fn report,
                                  void *ctx)
{
    struct pst_str now = {0};

    pstd_setting_add_plugins(&now, plan);
    pstd_setting_compare(pst_str_text(&now), before, report, ctx);
    pst_str_fini(&now);
}
