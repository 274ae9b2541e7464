// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/options/points.h"
#include "daemon/common/options/sets.h"

void *pstd_config_member(const struct pstd_config *config,
                         const struct pstd_option *row)
{
    return (char *)config + row->at;
}

/* True if text is one of the choices "a|b|c". The choice "d:E" is "d:" with any
 * text after it. */
static bool is_choice(const char *choices, const char *text)
{
    for (const char *at = choices;; at++) {
        const size_t len = strcspn(at, "|"), colon = strcspn(at, ":|");

        if (at[colon] == ':'
                ? strncmp(text, at, colon + 1) == 0
                : strlen(text) == len && strncmp(text, at, len) == 0)
            return true;
        at += len;
        if (*at == '\0')
            return false;
    }
}

static bool parse_flag(const char *text, bool *ret)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};

    for (size_t i = 0; i < PST_COUNT(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *ret = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* Parses a size: a number of MiB, or a number with a unit (K, M, G, T, also as
 * KiB). */
static bool parse_mib(const char *text, double *ret)
{
    static const char units[] = "KMGT";
    const size_t n = strcspn(text, units);
    const char *unit = text + n;
    char number[64];
    double scale = 1.0 / 1024.0;

    if (n >= sizeof(number) ||
        (*unit != '\0' && unit[1] != '\0' && strcmp(unit + 1, "iB") != 0))
        return false;
    memcpy(number, text, n);
    number[n] = '\0';
    if (!pst_parse_f64(number, ret))
        return false;
    for (const char *u = units; *unit != '\0' && *u != *unit; u++)
        scale *= 1024.0;
    *ret *= *unit == '\0' ? 1.0 : scale;
    return isfinite(*ret);
}

static enum pst_status store_number(struct pstd_config *config,
                                    const struct pstd_option *row,
                                    const char *who, const char *text,
                                    struct pst_diag *diag)
{
    int64_t i = 0;
    double x;

    if (row->type == PSTD_UINT) {
        if (!pst_parse_i64(text, &i) || i < 0)
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: \"%s\" is not a whole number from %.0f to "
                                "%.0f",
                                who, text, row->min, row->max);
        x = (double)i;
    } else if (row->type == PSTD_MIB) {
        if (!parse_mib(text, &x))
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: \"%s\" is not a size: a number of MiB, or "
                                "with a unit, as 512MiB or 2GiB",
                                who, text);
    } else if (!pst_parse_f64(text, &x) || !isfinite(x)) {
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: \"%s\" is not a number", who, text);
    }
    if (x < row->min || x > row->max)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            row->type == PSTD_UINT
                                ? "%s: %s is not between %.0f and %.0f"
                                : "%s: %s is not between %g and %g",
                            who, text, row->min, row->max);
    if (row->type == PSTD_UINT)
        *(uint64_t *)pstd_config_member(config, row) = (uint64_t)i;
    else
        *(double *)pstd_config_member(config, row) = x;
    return PST_OK;
}

static enum pst_status add_text(struct pstd_config *config,
                                struct pstd_list *list, const char *text,
                                struct pst_diag *diag)
{
    const char **at =
        pst_arena_calloc(&config->arena, list->n + 1, sizeof(*at));
    char *copy = pst_arena_strdup(&config->arena, text);

    if (at == NULL || copy == NULL)
        return pst_diag_nomem(diag, sizeof(*at));
    if (list->n > 0)
        memcpy(at, list->at, list->n * sizeof(*at));
    at[list->n++] = copy;
    list->at = at;
    return PST_OK;
}

static enum pst_status store_points(struct pstd_config *config,
                                    const struct pstd_option *row,
                                    const char *who, const char *text,
                                    struct pst_diag *diag)
{
    const enum pst_status status = pstd_points_read(
        who, text, &config->arena, pstd_config_member(config, row), diag);

    return status == PST_OK && text[0] == '@'
               ? add_text(config, &config->read, text + 1, diag)
               : status;
}

static enum pst_status store_text(struct pstd_config *config,
                                  const struct pstd_option *row,
                                  const char *who, const char *text,
                                  struct pst_diag *diag)
{
    const char **at = pstd_config_member(config, row);
    char *copy;

    if (row->type == PSTD_CHOICE && !is_choice(row->value, text))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: \"%s\" is none of %s", who, text, row->value);
    if ((row->type == PSTD_PATH || row->type == PSTD_PATHS ||
         row->type == PSTD_FILES || row->type == PSTD_SETS) &&
        *text == '\0')
        return pst_diag_set(diag, PST_E_OPTION_VALUE, "%s: the path is empty",
                            who);
    if (row->type == PSTD_POINTS)
        return store_points(config, row, who, text, diag);
    if (row->type == PSTD_SETS)
        return pstd_sets_join(who, *at, text, &config->arena, at, diag);
    /* A variable or a copied config may set the option again to its current
     * text; the rules or paths are then not appended a second time. */
    if ((row->type == PSTD_RULES || row->type == PSTD_PATHS) && *at != NULL &&
        strcmp(*at, text) != 0)
        copy = pst_arena_printf(&config->arena, "%s%c%s", *at,
                                row->type == PSTD_RULES ? ';' : ':', text);
    else
        copy = pst_arena_strdup(&config->arena, text);
    if (copy == NULL)
        return pst_diag_nomem(diag, strlen(text) + 1);
    *at = copy;
    return PST_OK;
}

static enum pst_status store_grid(struct pstd_config *config,
                                  const struct pstd_option *row,
                                  const char *who, const char *text,
                                  struct pst_diag *diag)
{
    struct pstd_grid *grid = pstd_config_member(config, row);
    const char *x = strchr(text, 'x');
    int64_t replicas = 1, ranks = 0;
    char first[8] = "1";

    if (x != NULL)
        (void)snprintf(first, sizeof(first), "%.*s",
                       (int)PST_MIN(x - text, (ptrdiff_t)sizeof(first)), text);
    if (!pst_parse_i64(first, &replicas) ||
        !pst_parse_i64(x != NULL ? x + 1 : text, &ranks))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: \"%s\" is neither a number of ranks nor "
                            "replicas x ranks, as 2x4",
                            who, text);
    if (replicas < 1 || ranks < 1 || ranks > (int64_t)row->max / replicas)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: %s is not between %g and %g ranks", who, text,
                            row->min, row->max);
    *grid = (struct pstd_grid){(uint64_t)replicas, (uint64_t)ranks};
    return PST_OK;
}

/* Parses the value of a flag with an optional step. A number is a step; "yes"
 * and "no" are the flag without a step; "auto" means on if there is a
 * checkpoint. */
static enum pst_status store_from(struct pstd_config *config,
                                  const struct pstd_option *row,
                                  const char *who, const char *text,
                                  struct pst_diag *diag)
{
    struct pstd_from *from = pstd_config_member(config, row);
    int64_t step = 0;
    bool on = true;
    const bool if_any = strcmp(text, "auto") == 0;

    if (!if_any && !pst_parse_i64(text, &step) && !parse_flag(text, &on))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: \"%s\" is none of yes, no, auto, and no "
                            "number of a step",
                            who, text);
    if (step < 0 || (step == 0 && text[strspn(text, "+-0")] == '\0'))
        return pst_diag_set(
            diag, PST_E_OPTION_VALUE,
            "%s: %s is not a step of a checkpoint; %s alone takes "
            "the newest one, no starts anew",
            who, text, who);
    *from =
        (struct pstd_from){.on = on, .if_any = if_any, .step = (uint64_t)step};
    return PST_OK;
}

/* Stores the value of an option. who: the option as the user wrote it, for
 * messages. */
static enum pst_status store_value(struct pstd_config *config,
                                   const struct pstd_option *row,
                                   const char *who, const char *text,
                                   struct pst_diag *diag)
{
    switch (row->type) {
    case PSTD_FLAG:
        if (!parse_flag(text, (bool *)pstd_config_member(config, row)))
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: \"%s\" is none of 1, 0, yes, no", who,
                                text);
        return PST_OK;
    case PSTD_UINT:
    case PSTD_REAL:
    case PSTD_MIB:
        return store_number(config, row, who, text, diag);
    case PSTD_LIST:
        return add_text(config, pstd_config_member(config, row), text, diag);
    case PSTD_GRID:
        return store_grid(config, row, who, text, diag);
    case PSTD_FROM:
        return store_from(config, row, who, text, diag);
    case PSTD_EVERY:
        return pstd_every_parse(who, text, pstd_config_member(config, row),
                                diag);
    case PSTD_RAMP:
        return pstd_ramp_parse(who, text, pstd_config_member(config, row),
                               diag);
    case PSTD_TEXT:
    case PSTD_SOURCE:
    case PSTD_CHOICE:
    case PSTD_RULES:
    case PSTD_POINTS:
    case PSTD_PATH:
    case PSTD_PATHS:
    case PSTD_FILES:
    case PSTD_SETS:
        break;
    }
    return store_text(config, row, who, text, diag);
}

static enum pst_status store_given(struct pstd_config *config,
                                   const struct pstd_option *row,
                                   const char *who, const char *text,
                                   struct pst_diag *diag)
{
    size_t n;
    const enum pst_status status = store_value(config, row, who, text, diag);

    if (status == PST_OK)
        config->given[row - pstd_options(&n)] = true;
    return status;
}

enum pst_status pstd_config_init(struct pstd_config *config,
                                 struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    memset(config, 0, sizeof(*config));
    pst_arena_init(&config->arena, PST_TAG_DAEMON);
    for (size_t i = 0; i < n; i++) {
        enum pst_status status = PST_OK;

        if (rows[i].start != NULL)
            status = store_value(config, &rows[i], rows[i].name, rows[i].start,
                                 diag);
        else if (rows[i].type == PSTD_REAL)
            *(double *)pstd_config_member(config, &rows[i]) = NAN;
        if (status != PST_OK) {
            pstd_config_fini(config);
            return status;
        }
    }
    return PST_OK;
}

void pstd_config_fini(struct pstd_config *config)
{
    pst_arena_fini(&config->arena);
    memset(config, 0, sizeof(*config));
}

enum pst_status pstd_config_copy(struct pstd_config *to,
                                 const struct pstd_config *from,
                                 struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    enum pst_status status = pstd_config_init(to, diag);

    if (status != PST_OK)
        return status;
    if (from->steps_counted)
        pstd_set_steps(to, from->steps);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pstd_list *list = pstd_config_member(from, &rows[i]);
        struct pst_str text = {0};

        if (!from->given[i])
            continue;
        for (size_t k = 0; rows[i].type == PSTD_LIST && k < list->n; k++)
            if (status == PST_OK)
                status = add_text(to, pstd_config_member(to, &rows[i]),
                                  list->at[k], diag);
        if (pstd_config_text(from, &rows[i], &text) && !text.failed)
            status = store_value(to, &rows[i], rows[i].name,
                                 pst_str_text(&text), diag);
        if (text.failed && status == PST_OK)
            status = pst_diag_nomem(diag, text.len);
        pst_str_fini(&text);
        to->given[i] = true;
    }
    if (status != PST_OK)
        pstd_config_fini(to);
    return status;
}

bool pstd_config_given(const struct pstd_config *config, size_t at)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++)
        if (rows[i].at == at)
            return config->given[i];
    return false;
}

void pstd_config_drop(struct pstd_config *config, size_t at)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        if (rows[i].at != at || rows[i].start != NULL)
            continue;
        *(const char **)pstd_config_member(config, &rows[i]) = NULL;
        config->given[i] = false;
    }
}

enum pst_status pstd_config_set_all(struct pstd_config *config, uint64_t groups,
                                    const char *text, size_t size,
                                    struct pst_diag *diag)
{
    const char *const end = text + size;
    enum pst_status status = PST_OK;

    while (status == PST_OK && text < end) {
        const char *value = text + strlen(text) + 1;

        status = pstd_config_set(config, groups, text, value, diag);
        text = value + strlen(value) + 1;
    }
    return status;
}

unsigned pstd_ranks(const struct pstd_config *config, unsigned otherwise)
{
    return config->grid.ranks > 0 ? (unsigned)config->grid.ranks : otherwise;
}

unsigned pstd_replicas(const struct pstd_config *config)
{
    return PST_MAX(1, (unsigned)config->grid.replicas);
}

/* Converts "lr-min" to "PENSTOCK_LR_MIN". */
static void name_variable(const char *option, char ret[64])
{
    size_t n = strlen("PENSTOCK_");

    memcpy(ret, "PENSTOCK_", n);
    for (; *option != '\0' && n < 63; option++)
        ret[n++] =
            (char)(*option == '-' ? '_' : toupper((unsigned char)*option));
    ret[n] = '\0';
}

enum pst_status pstd_config_env(struct pstd_config *config, uint64_t groups,
                                struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        enum pst_status status = PST_OK;
        const char *value;
        char name[64];

        if (!(rows[i].groups & groups & ~PSTD_OPT_ALL))
            continue;
        name_variable(rows[i].name, name);
        value = getenv(name); // NOLINT(concurrency-mt-unsafe): before threads
        if (value != NULL)
            status = store_given(config, &rows[i], name, value, diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Variables that are not options: tests and scripts in the source tree use
 * them. */
static const char *const other_variables[] = {
    "PENSTOCK_FAULT",          "PENSTOCK_FAULT_ONCE",
    "PENSTOCK_FAULT_RANK",     "PENSTOCK_TEST_CUDA",
    "PENSTOCK_FAULT_BIT",      "PENSTOCK_SHADOW",
    "PENSTOCK_SHADOW_LAG",     "PENSTOCK_PYTHON",
    "PENSTOCK_MESON",          "PENSTOCK_OLDER",
    "PENSTOCK_LIBCUDA",        "PENSTOCK_TEST_CUDA_MIB",
    "PENSTOCK_LIBCUBLASLT",    "PENSTOCK_TEST_CUBLASLT",
    "PENSTOCK_TEST_CUDA_OPEN", "PENSTOCK_CUDA_IPC",
    "PENSTOCK_TEST_CUDA_LOST", "PENSTOCK_GATE"};

void pstd_config_env_unread(pstd_unread_fn fn, void *ctx)
{
    static char texts[PSTD_MAX_OPTIONS][64]; /* used before threads start */
    const char *names[PSTD_MAX_OPTIONS + PST_COUNT(other_variables)];
    size_t n_options, n = 0;
    const struct pstd_option *rows = pstd_options(&n_options);

    for (; n < n_options; n++) {
        name_variable(rows[n].name, texts[n]);
        names[n] = texts[n];
    }
    for (size_t i = 0; i < PST_COUNT(other_variables); i++)
        names[n++] = other_variables[i];
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        char name[64];
        size_t i = 0;
        int near;

        if (!pst_has_prefix(*at, "PENSTOCK_"))
            continue;
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
        while (i < n && strcmp(names[i], name) != 0)
            i++;
        near = i < n ? -1 : pst_nearest(name, names, n);
        if (i == n)
            fn(ctx, name, near < 0 ? NULL : names[near]);
    }
}

static enum pst_status refuse_unknown(uint64_t groups, const char *prefix,
                                      const char *name, struct pst_diag *diag)
{
    size_t n, n_names = 0;
    const struct pstd_option *rows = pstd_options(&n);
    const char *names[PSTD_MAX_OPTIONS];
    const char *ours = pstd_option_from_trainer(name);
    int near;

    if (ours != NULL && (groups & (PSTD_OPT_TRAIN | PSTD_OPT_SET)))
        return pst_diag_set(diag, PST_E_OPTION_UNKNOWN,
                            "unknown option %s%s; here that is %s", prefix,
                            name, ours);
    for (size_t i = 0; i < n; i++)
        if (rows[i].groups & groups)
            names[n_names++] = rows[i].name;
    near = pst_nearest(name, names, n_names);
    if (near >= 0)
        return pst_diag_set(diag, PST_E_OPTION_UNKNOWN,
                            "unknown option %s%s; did you mean %s%s?", prefix,
                            name, prefix, names[near]);
    return pst_diag_set(diag, PST_E_OPTION_UNKNOWN,
                        "unknown option %s%s; see --help", prefix, name);
}

const struct pstd_option *pstd_option_find(uint64_t groups, const char *name)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++)
        if ((rows[i].groups & groups) && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

enum pst_status pstd_config_set(struct pstd_config *config, uint64_t groups,
                                const char *name, const char *value,
                                struct pst_diag *diag)
{
    const struct pstd_option *row = pstd_option_find(groups, name);

    if (row == NULL)
        return refuse_unknown(groups, "", name, diag);
    return store_given(config, row, name, value, diag);
}

static bool is_utf8(const char *value)
{
    struct pst_str text = {0};
    bool same;

    pst_str_add_utf8(&text, value);
    same = !text.failed && strcmp(pst_str_text(&text), value) == 0;
    pst_str_fini(&text);
    return same;
}

/* True for an option that not even a resume of the run can change. */
static bool is_for_all_resumes(const char *name)
{
    static const char *const names[] = {"optimizer", "seed", "state-dtype"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

enum pst_status pstd_config_set_running(struct pstd_config *config,
                                        const char *name, const char *value,
                                        struct pst_diag *diag)
{
    if (pstd_option_find(PSTD_OPT_SET, name) == NULL &&
        pstd_option_find(PSTD_OPT_TRAIN, name) != NULL)
        return pst_diag_set(
            diag, PST_E_RUN_SET, "--%.60s cannot change while a run goes on%s",
            name,
            is_for_all_resumes(name)
                ? ", nor in its resumes"
                : ": stop it, and resume it with the new value");
    if (*value == '\0' || !is_utf8(value))
        return pst_diag_set(diag, PST_E_OPTION_VALUE, "%.60s: the value is %s",
                            name, *value == '\0' ? "empty" : "not UTF-8");
    return pstd_config_set(config, PSTD_OPT_SET, name, value, diag);
}

/* Parses --name value or --name=value; advances *i past the value. */
static enum pst_status parse_long(struct pstd_config *config, uint64_t groups,
                                  int argc, char *const *argv, int *i,
                                  struct pst_diag *diag)
{
    const char *equals = strchr(argv[*i], '=');
    char name[64], who[72];
    const size_t len =
        equals != NULL ? (size_t)(equals - argv[*i]) - 2 : strlen(argv[*i]) - 2;
    const struct pstd_option *row;
    const char *value;

    if (len >= sizeof(name))
        return pst_diag_set(diag, PST_E_OPTION_UNKNOWN, "unknown option %.80s",
                            argv[*i]);
    memcpy(name, argv[*i] + 2, len);
    name[len] = '\0';
    row = pstd_option_find(groups, name);
    if (row == NULL)
        return refuse_unknown(groups, "--", name, diag);
    if (equals != NULL)
        value = equals + 1;
    else if (row->type == PSTD_FLAG || row->type == PSTD_FROM)
        value = "yes";
    else if (*i + 1 < argc)
        value = argv[++*i];
    else
        return pst_diag_set(diag, PST_E_OPTION_VALUE, "--%s needs a value (%s)",
                            name, row->value);
    (void)snprintf(who, sizeof(who), "--%s", name);
    return store_given(config, row, who, value, diag);
}

/* True for a short option such as "-n"; "-3" and "-.5" are numbers. */
static bool is_short(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0' && arg[1] != '.' &&
           (arg[1] < '0' || arg[1] > '9');
}

/* Parses -n value or -nvalue. */
static enum pst_status parse_short(struct pstd_config *config, uint64_t groups,
                                   int argc, char *const *argv, int *i,
                                   struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    const char *arg = argv[*i];
    const char who[3] = {'-', arg[1], '\0'};
    const char *value;
    size_t k = 0;

    while (k < n && (rows[k].letter != arg[1] || !(rows[k].groups & groups)))
        k++;
    if (k == n)
        return pst_diag_set(diag, PST_E_OPTION_UNKNOWN,
                            "unknown option %s; see --help", who);
    if (rows[k].type == PSTD_FLAG) {
        if (arg[2] != '\0')
            return pst_diag_set(diag, PST_E_OPTION_VALUE, "%s takes no value",
                                who);
        value = "1";
    } else if (arg[2] != '\0') {
        value = arg + 2;
    } else if (*i + 1 < argc) {
        value = argv[++*i];
    } else {
        return pst_diag_set(diag, PST_E_OPTION_VALUE, "%s needs a value (%s)",
                            who, rows[k].value);
    }
    return store_given(config, &rows[k], who, value, diag);
}

/* Returns how many arguments the option takes: 1, or 2 with its value. */
static int count_words(const char *arg, uint64_t groups)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n), *row = NULL;
    const bool is_long = pst_has_prefix(arg, "--");

    if (is_long && strchr(arg, '=') == NULL)
        row = pstd_option_find(groups, arg + 2);
    for (size_t i = 0; i < n && !is_long && arg[2] == '\0'; i++)
        if (rows[i].letter == arg[1] && (rows[i].groups & groups))
            row = &rows[i];
    return row == NULL || row->type == PSTD_FLAG || row->type == PSTD_FROM ? 1
                                                                           : 2;
}

/* Reads the files of options (@FILE) among the arguments. */
static enum pst_status read_files(struct pstd_config *config, uint64_t groups,
                                  int argc, char *const *argv,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (int i = 1; i < argc && status == PST_OK; i++) {
        if (strcmp(argv[i], "--") == 0)
            break;
        if (argv[i][0] == '@') {
            status = pstd_config_read(config, groups, argv[i] + 1, diag);
            if (status == PST_OK)
                status = add_text(config, &config->read, argv[i] + 1, diag);
        } else if (is_short(argv[i])) {
            i += count_words(argv[i], groups) - 1;
        }
    }
    return status;
}

enum pst_status pstd_config_parse(struct pstd_config *config, uint64_t groups,
                                  int argc, char *const *argv,
                                  struct pst_diag *diag)
{
    enum pst_status status;
    bool options = true;

    config->args = pst_arena_calloc(&config->arena, argc > 0 ? (size_t)argc : 1,
                                    sizeof(*config->args));
    if (config->args == NULL)
        return pst_diag_nomem(diag, (size_t)argc * sizeof(*config->args));
    groups |= PSTD_OPT_ALL;
    status = read_files(config, groups, argc, argv, diag);
    for (int i = 1; i < argc && status == PST_OK; i++) {
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && pst_has_prefix(argv[i], "--"))
            status = parse_long(config, groups, argc, argv, &i, diag);
        else if (options && is_short(argv[i]))
            status = parse_short(config, groups, argc, argv, &i, diag);
        else if (!options || argv[i][0] != '@')
            config->args[config->n_args++] = argv[i];
    }
    return status;
}
