// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/groups/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/str.h"

#define TAG PST_TAG_PLAN

static const char *const words[] = {"norms", "biases", "embeddings",
                                    "last-matrix", "others"};

struct reader {
    struct pst_rules *ret;
    struct pst_arena *arena;
    struct pst_diag *diag;
};

static enum pst_status refuse_rule(const struct reader *m,
                                   const struct pst_rule *rule, const char *why,
                                   const char *what)
{
    return pst_diag_set(m->diag, PST_E_OPTIMIZER_GROUP,
                        "--group \"%.200s\": %s%.100s", rule->text, why, what);
}

/* Reads the numbers of dimensions for which a condition such as "<2" holds;
 * returns false if the text is no condition. */
static bool read_ndim(const char *text, struct pst_term *ret)
{
    const size_t n = strspn(text, "<>=!");
    int64_t number;

    if (n < 1 || n > 2 || !isdigit((unsigned char)text[n]) ||
        !pst_parse_i64(text + n, &number) || number > 1000)
        return false;
    ret->least = text[0] == '<' ? 0 : number + (text[0] == '>' && n == 1);
    ret->most =
        text[0] == '>' ? INT64_MAX : number - (text[0] == '<' && n == 1);
    ret->outside = text[0] == '!';
    if (ret->outside)
        ret->least = ret->most = number;
    return n == 1 ? !ret->outside : text[0] != '=' && text[1] == '=';
}

static enum pst_status read_term(const struct reader *m, struct pst_rule *rule,
                                 const char *text, bool or_next)
{
    struct pst_term term = {
        .kind = PST_TERM_PATTERN, .or_next = or_next, .glob = text};

    if (*text == '\0')
        return refuse_rule(m, rule, "a term is empty", "");
    for (int w = 0; w < (int)PST_COUNT(words); w++)
        if (strcmp(text, words[w]) == 0) {
            term.kind = PST_TERM_WORD;
            term.word = (enum pst_term_word)w;
        }
    if (pst_has_prefix(text, "type=")) {
        term.kind = PST_TERM_TYPE;
        term.glob = text + strlen("type=");
    } else if (pst_has_prefix(text, "ndim") &&
               strchr("<>=!", text[strlen("ndim")]) != NULL) {
        term.kind = PST_TERM_NDIM;
        if (!read_ndim(text + strlen("ndim"), &term))
            return refuse_rule(
                m, rule, "a number of dimensions is written like ndim<2, not ",
                text);
    }
    return pst_vec_push(TAG, &rule->terms, term)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(term));
}

static enum pst_status read_setting(const struct reader *m,
                                    struct pst_rule *rule, char *text)
{
    char *is = strchr(text, '=');
    struct pst_rule_setting s = {.name = text, .value = is};

    if (is == NULL || is == text || is[1] == '\0')
        return refuse_rule(m, rule, "an option is written OPTION=VALUE, not ",
                           text);
    *is = '\0';
    s.value = is + 1;
    for (size_t i = 0; i < rule->settings.n; i++)
        if (strcmp(rule->settings.at[i].name, s.name) == 0)
            return refuse_rule(m, rule, "it has two values of ", s.name);
    return pst_vec_push(TAG, &rule->settings, s)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(s));
}

/* Calls `read` for each part of a copy of the text between commas. */
static enum pst_status read_parts(
    const struct reader *m, struct pst_rule *rule, const char *text, size_t len,
    enum pst_status (*read)(const struct reader *, struct pst_rule *, char *))
{
    enum pst_status status = PST_OK;
    size_t begin = 0;

    while (status == PST_OK && begin <= len) {
        const char *comma = memchr(text + begin, ',', len - begin);
        const size_t end = comma != NULL ? (size_t)(comma - text) : len;
        char *part = pst_arena_strndup(m->arena, text + begin, end - begin);

        status = part != NULL ? read(m, rule, part)
                              : pst_diag_nomem(m->diag, end - begin);
        begin = end + 1;
    }
    return status;
}

/* Reads "TERM|TERM". */
static enum pst_status read_terms(const struct reader *m, struct pst_rule *rule,
                                  char *text)
{
    enum pst_status status = PST_OK;

    for (char *bar = text; status == PST_OK && bar != NULL; text = bar + 1) {
        bar = strchr(text, '|');
        if (bar != NULL)
            *bar = '\0';
        status = read_term(m, rule, text, bar != NULL);
        if (bar == NULL)
            break;
    }
    return status;
}

static enum pst_status read_rule(struct reader *m, const char *text, size_t len)
{
    struct pst_rule rule = {.text = pst_arena_strndup(m->arena, text, len)};
    const char *colon;
    enum pst_status status;

    if (rule.text == NULL)
        return pst_diag_nomem(m->diag, len);
    if (m->ret->n == PST_RULES_MAX)
        return refuse_rule(m, &rule, "there are more than 64 rules", "");
    if (!pst_vec_push(TAG, m->ret, rule))
        return pst_diag_nomem(m->diag, sizeof(rule));
    if (strchr(rule.text, '\n') != NULL)
        return refuse_rule(m, &rule, "it has a line break", "");
    colon = strchr(rule.text, ':');
    if (colon == NULL)
        return refuse_rule(m, &rule, "it has no ':' before its options", "");
    status = read_parts(m, &m->ret->at[m->ret->n - 1], rule.text,
                        (size_t)(colon - rule.text), read_terms);
    if (status == PST_OK)
        status = read_parts(m, &m->ret->at[m->ret->n - 1], colon + 1,
                            strlen(colon + 1), read_setting);
    return status;
}

static enum pst_status read_no_decay(struct reader *m, const char *terms)
{
    struct pst_str rule = {0};
    enum pst_status status;

    if (terms == NULL)
        return PST_OK;
    pst_str_addf(&rule, "%s:weight-decay=0", terms);
    for (size_t i = 0; i < strlen(terms) && !rule.failed; i++)
        if (terms[i] == ',')
            rule.text[i] = '|';
    status = rule.failed ? pst_diag_nomem(m->diag, strlen(terms))
                         : read_rule(m, rule.text, rule.len);
    pst_str_fini(&rule);
    return status;
}

static enum pst_status read_others(struct reader *m, const char *optimizer)
{
    char rule[64];
    enum pst_status status;

    if (optimizer == NULL)
        return PST_OK;
    (void)snprintf(rule, sizeof(rule), "others:optimizer=%s", optimizer);
    status = read_rule(m, rule, strlen(rule));
    if (status == PST_OK)
        m->ret->at[m->ret->n - 1].is_default = true;
    return status;
}

enum pst_status pst_rules_read(struct pst_rules *ret, struct pst_arena *arena,
                               const char *others, const char *no_decay,
                               const char *text, struct pst_diag *diag)
{
    struct reader m = {.ret = ret, .arena = arena, .diag = diag};
    enum pst_status status;

    *ret = (struct pst_rules){0};
    status = read_others(&m, others);
    if (status == PST_OK)
        status = read_no_decay(&m, no_decay);
    while (status == PST_OK && text != NULL && *text != '\0') {
        const size_t len = strcspn(text, ";");

        if (len > 0)
            status = read_rule(&m, text, len);
        text += len + (text[len] == ';');
    }
    return status;
}

void pst_rules_fini(struct pst_rules *rules)
{
    for (size_t i = 0; i < rules->n; i++) {
        pst_vec_fini(&rules->at[i].terms);
        pst_vec_fini(&rules->at[i].settings);
    }
    pst_vec_fini(rules);
}
