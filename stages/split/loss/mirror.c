// SPDX-License-Identifier: Apache-2.0
/*
 * Reads loss specifications in the form of torch.distributed.pipelining:
 * "(False, True)", "{'out': False, 'loss': True}". Error messages begin with
 * PyTorch's words, so that users can search for them.
 */
#include <ctype.h>
#include <string.h>

#include "stages/split/loss/loss.h"

#define MAX_DEPTH 32

enum kind { NO, YES, SEQUENCE, DICT, OTHER };

struct mirror {
    enum kind kind;
    const char *text; /* the specification as written, for messages */
    int len;
    const char *key; /* key, if it is in a dict */
    struct mirror *first, *next;
    size_t n; /* number of children */
};

struct reader {
    struct pst_splitter *s;
    const struct pst_loss_outputs *leaves;
    const char *spec, *at;
    unsigned depth;
};

bool pst_loss_is_mirror(const char *spec)
{
    return strcmp(spec, "True") == 0 || strcmp(spec, "False") == 0 ||
           (*spec != '\0' && strchr("([{", *spec) != NULL);
}

/* --- reading ------------------------------------------------------------- */

static enum pst_status report_malformed(struct reader *r)
{
    return pst_diag_set(r->s->diag, PST_E_LOSS_UNKNOWN,
                        "--loss %.200s: character %d: a specification is "
                        "True, False or a tuple, list or dict of them",
                        r->spec, (int)(r->at - r->spec) + 1);
}

static void skip_blanks(struct reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

static bool accept_char(struct reader *r, char c)
{
    skip_blanks(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

static enum pst_status read_any(struct reader *r, struct mirror **ret);

/* Parses "'KEY':" in a dict. */
static enum pst_status read_key(struct reader *r, const char **ret)
{
    const char *begin, *end;
    char quote;

    skip_blanks(r);
    quote = *r->at;
    if (quote != '\'' && quote != '"')
        return report_malformed(r);
    begin = r->at + 1;
    end = strchr(begin, quote);
    if (end == NULL)
        return report_malformed(r);
    *ret = pst_arena_strndup(&r->s->plan->arena, begin, (size_t)(end - begin));
    if (*ret == NULL)
        return pst_diag_nomem(r->s->diag, 0);
    r->at = end + 1;
    return accept_char(r, ':') ? PST_OK : report_malformed(r);
}

static enum pst_status read_items(struct reader *r, struct mirror *m,
                                  char close)
{
    struct mirror **tail = &m->first;

    while (!accept_char(r, close)) {
        const char *key = NULL;
        enum pst_status status = PST_OK;

        if (m->kind == DICT)
            status = read_key(r, &key);
        if (status == PST_OK)
            status = read_any(r, tail);
        if (status != PST_OK)
            return status;
        (*tail)->key = key;
        tail = &(*tail)->next;
        m->n++;
        if (!accept_char(r, ',')) {
            if (accept_char(r, close))
                break;
            return report_malformed(r);
        }
    }
    return PST_OK;
}

static enum kind word_kind(const char *word, size_t n)
{
    if (n == 4 && strncmp(word, "True", n) == 0)
        return YES;
    if (n == 5 && strncmp(word, "False", n) == 0)
        return NO;
    return OTHER;
}

static enum pst_status read_any(struct reader *r, struct mirror **ret)
{
    struct mirror *m =
        pst_arena_calloc(&r->s->plan->arena, 1, sizeof(struct mirror));
    enum pst_status status = PST_OK;
    size_t n;

    if (m == NULL)
        return pst_diag_nomem(r->s->diag, sizeof(*m));
    if (++r->depth > MAX_DEPTH)
        return report_malformed(r);
    skip_blanks(r);
    m->text = r->at;
    if (accept_char(r, '(')) {
        m->kind = SEQUENCE;
        status = read_items(r, m, ')');
    } else if (accept_char(r, '[')) {
        m->kind = SEQUENCE;
        status = read_items(r, m, ']');
    } else if (accept_char(r, '{')) {
        m->kind = DICT;
        status = read_items(r, m, '}');
    } else {
        n = strcspn(r->at, " ,()[]{}:");
        m->kind = word_kind(r->at, n);
        r->at += n;
        if (n == 0)
            status = report_malformed(r);
    }
    m->len = (int)PST_MIN(r->at - m->text, 200);
    r->depth--;
    if (status == PST_OK)
        *ret = m;
    return status;
}

/* --- against the outputs -------------------------------------------------- */

/* Returns the rest of `path` after `prefix`; "" if they are equal, NULL if path
 * does not begin with prefix. */
static const char *path_below(const char *path, const char *prefix)
{
    const size_t n = strlen(prefix);

    if (n == 0)
        return path;
    if (strncmp(path, prefix, n) != 0 || (path[n] != '.' && path[n] != '\0'))
        return NULL;
    return path[n] == '.' ? path + n + 1 : path + n;
}

/* Counts the leaves whose paths begin with prefix. *ret: index of the last of
 * them, unchanged if there is none. */
static size_t count_leaves(const struct pst_loss_outputs *l, const char *prefix,
                           int *ret)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        if (path_below(l->paths[i], prefix) != NULL) {
            *ret = (int)i;
            n++;
        }
    return n;
}

/* Returns the name of child k of the container `prefix`, in the order of the
 * leaves; NULL after the last child. Leaves of the same child are adjacent. */
static const char *find_child(const struct reader *r, const char *prefix,
                              size_t k, bool *nomem)
{
    const char *last = "";
    size_t last_n = 0, seen = 0;

    for (size_t i = 0; i < r->leaves->n; i++) {
        const char *rest = path_below(r->leaves->paths[i], prefix);
        size_t n;

        if (rest == NULL || *rest == '\0')
            continue;
        n = strcspn(rest, ".");
        if (n == last_n && strncmp(rest, last, n) == 0)
            continue;
        last = rest;
        last_n = n;
        if (seen++ == k) {
            last = pst_arena_strndup(&r->s->plan->arena, rest, n);
            *nomem = last == NULL;
            return last;
        }
    }
    return NULL;
}

/* Prints the paths of the outputs in the container `prefix`: "(0, 1)". */
static void outputs_text(const struct reader *r, const char *prefix,
                         struct pst_str *out)
{
    const char *comma = "";

    pst_str_add(out, "(");
    for (size_t i = 0; i < r->leaves->n && out->len < 200; i++)
        if (path_below(r->leaves->paths[i], prefix) != NULL) {
            pst_str_addf(out, "%s%s", comma, r->leaves->paths[i]);
            comma = ", ";
        }
    pst_str_add(out, ")");
}

static enum pst_status report_mismatch(struct reader *r, const struct mirror *m,
                                       const char *prefix, const char *what)
{
    struct pst_str text = {0};

    outputs_text(r, prefix, &text);
    pst_diag_set(r->s->diag, PST_E_LOSS_OUTPUT,
                 "Output value %s must match %s of loss specification %.*s",
                 pst_str_text(&text), what, m->len, m->text);
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

static enum pst_status match_spec(struct reader *r, const struct mirror *m,
                                  const char *prefix, int *found);

static const struct mirror *find_key(const struct mirror *m, const char *key)
{
    const struct mirror *i = m->first;

    while (i != NULL && strcmp(i->key, key) != 0)
        i = i->next;
    return i;
}

static enum pst_status match_children(struct reader *r, const struct mirror *m,
                                      const char *prefix, int *found)
{
    const struct mirror *item = m->first;
    enum pst_status status = PST_OK;
    bool nomem = false;
    const char *name = find_child(r, prefix, 0, &nomem);
    size_t n = 0;

    while (find_child(r, prefix, n, &nomem) != NULL)
        n++;
    if (nomem)
        return pst_diag_nomem(r->s->diag, 0);
    if (n == 0 || (m->kind == DICT) == is_number(name))
        return report_mismatch(r, m, prefix, "type");
    if (n != m->n)
        return report_mismatch(r, m, prefix,
                               m->kind == DICT ? "keys" : "length");
    for (size_t i = 0; i < n && status == PST_OK && *found < 0; i++) {
        const char *path;

        name = find_child(r, prefix, i, &nomem);
        if (name == NULL)
            return pst_diag_nomem(r->s->diag, 0);
        if (m->kind == DICT && (item = find_key(m, name)) == NULL)
            return report_mismatch(r, m, prefix, "keys");
        path = pst_arena_printf(&r->s->plan->arena, "%s%s%s", prefix,
                                *prefix != '\0' ? "." : "", name);
        if (path == NULL)
            return pst_diag_nomem(r->s->diag, 0);
        status = match_spec(r, item, path, found);
        item = m->kind == DICT ? item : item->next;
    }
    return status;
}

/* Matches the specification m with the outputs below prefix. *found: index of
 * the leaf that is the loss; -1 until it is found. */
static enum pst_status match_spec(struct reader *r, const struct mirror *m,
                                  const char *prefix, int *found)
{
    struct pst_str text = {0};
    int leaf = -1;

    if (m->kind == NO)
        return PST_OK;
    if (m->kind == SEQUENCE || m->kind == DICT)
        return match_children(r, m, prefix, found);
    if (m->kind == OTHER)
        return pst_diag_set(r->s->diag, PST_E_LOSS_OUTPUT,
                            "Unsupported type of %.*s in loss specification: "
                            "each output is True or False",
                            m->len, m->text);
    if (count_leaves(r->leaves, prefix, &leaf) == 1) {
        *found = leaf;
        return PST_OK;
    }
    outputs_text(r, prefix, &text);
    pst_diag_set(r->s->diag, PST_E_LOSS_OUTPUT,
                 "Loss spec must specify a dynamic value but got %s: say which "
                 "of them",
                 pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_INPUT;
}

enum pst_status pst_loss_mirror(struct pst_splitter *s,
                                const struct pst_loss_outputs *leaves,
                                const char *spec, int *ret)
{
    struct reader r = {.s = s, .leaves = leaves, .spec = spec, .at = spec};
    struct mirror *m = NULL;
    int found = -1;
    enum pst_status status = read_any(&r, &m);

    if (status != PST_OK || m == NULL)
        return status;
    skip_blanks(&r);
    status =
        *r.at != '\0' ? report_malformed(&r) : match_spec(&r, m, "", &found);
    if (status != PST_OK)
        return status;
    if (found < 0 && m->kind == NO)
        return pst_diag_set(s->diag, PST_E_LOSS_OUTPUT,
                            "Did not find any loss value according to "
                            "output_loss_value_spec=False; --loss none makes a "
                            "plan without a loss");
    if (found < 0)
        return pst_diag_set(s->diag, PST_E_LOSS_OUTPUT,
                            "Did not find loss value in specification %.200s",
                            spec);
    *ret = found;
    return PST_OK;
}
