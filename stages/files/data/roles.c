// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data/roles.h"

#include <stddef.h>
#include <string.h>

/* A role that an option or a name can give. Masks begin as PST_ROLE_MASK; their
 * shape decides between that and PST_ROLE_ONES when the tokens are known. */
static const struct rule {
    enum pst_role role;
    size_t given;         /* offset of the name in struct pst_role_names */
    const char *names[4]; /* usual names of such an input */
    const char *what;
} rules[] = {
    {PST_ROLE_TOKENS,
     offsetof(struct pst_role_names, tokens),
     {"input_ids", "tokens", "token_ids", "idx"},
     "integers, to take tokens"},
    {PST_ROLE_TARGETS,
     offsetof(struct pst_role_names, targets),
     {"targets", "target", "labels", "label"},
     "integers, to take the next tokens"},
    {PST_ROLE_POSITIONS,
     offsetof(struct pst_role_names, positions),
     {"position_ids", "positions", "input_pos", "pos"},
     "integers, one for each token"},
    {PST_ROLE_DOCUMENTS,
     offsetof(struct pst_role_names, documents),
     {"document_ids", "doc_ids", "segment_ids", "documents"},
     "integers, one for each token"},
    {PST_ROLE_MASK,
     offsetof(struct pst_role_names, mask),
     {"attention_mask", "attn_mask", "mask", "block_mask"},
     "bool or float, (..., T, T) for T tokens"},
};

static const char *given_name(const struct pst_role_names *given,
                              const struct rule *rule)
{
    return *(const char *const *)((const char *)given + rule->given);
}

/* Returns the last part of a path: "ids" for the nested input "batch.ids". */
static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL ? dot + 1 : name;
}

static bool is_usual(const struct rule *rule, const char *name)
{
    const char *part = last_part(name);

    for (size_t i = 0; i < PST_COUNT(rule->names); i++)
        if (strcmp(rule->names[i], part) == 0)
            return true;
    /* "cache_position" of transformers */
    return rule->role == PST_ROLE_POSITIONS && strstr(part, "position") != NULL;
}

/* True if the name says that the input gets neither tokens nor targets. */
static bool is_other(const char *name)
{
    const char *part = last_part(name);
    const size_t n = strlen(part);

    for (size_t r = 0; r < PST_COUNT(rules); r++)
        if (rules[r].role > PST_ROLE_TARGETS && is_usual(&rules[r], name))
            return true;
    return (n >= 4 && strcmp(part + n - 4, "mask") == 0) ||
           strcmp(part, "token_type_ids") == 0;
}

static bool is_integers(const struct pst_role_input *in)
{
    return pst_dtype_kind(in->meta.dtype) == PST_KIND_INT && in->meta.rank > 0;
}

/* True if the two last dimensions are equal. */
static bool is_square(const struct pst_meta *m)
{
    return m->rank > 1 && m->size[m->rank - 1] == m->size[m->rank - 2];
}

/* Returns the kind of mask that fits the input's shape and dtype; PST_ROLE_NONE
 * if neither does. */
static enum pst_role mask_role(const struct pst_role_input *in,
                               const struct pst_role_input *tokens)
{
    const enum pst_dtype_kind kind = pst_dtype_kind(in->meta.dtype);
    const struct pst_meta *m = &in->meta;
    const bool pairs =
        is_square(m) && (kind == PST_KIND_BOOL || kind == PST_KIND_FLOAT);
    const bool same = tokens != NULL && pst_meta_same_shape(m, &tokens->meta);

    if (pairs && m->rank > 2)
        return PST_ROLE_MASK;
    /* A bool (T, T) with T rows of T tokens is ambiguous: neither kind. */
    if (same && (kind == PST_KIND_INT ||
                 (kind == PST_KIND_BOOL && (!pairs || m->size[0] == 1))))
        return PST_ROLE_ONES;
    if (pairs && !same && tokens != NULL && tokens->meta.rank > 0 &&
        m->size[0] == tokens->meta.size[tokens->meta.rank - 1])
        return PST_ROLE_MASK;
    return PST_ROLE_NONE;
}

/* --- assignment ----------------------------------------------------------- */

static enum pst_status refuse_shape(const struct pst_role_input *in,
                                    const struct rule *rule, bool packed,
                                    struct pst_diag *diag)
{
    char text[PST_META_TEXT];

    return pst_diag_set(diag, PST_E_DATA_SHAPE,
                        "input '%s' is %s, it has to be %s%s", in->name,
                        pst_meta_text(&in->meta, text), rule->what,
                        rule->role == PST_ROLE_MASK && !packed
                            ? ", or integers or bool, one for each token"
                            : "");
}

static enum pst_status assign_given(const struct rule *rule, const char *name,
                                    struct pst_role_input *inputs, size_t n,
                                    struct pst_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(inputs[i].name, name) != 0)
            continue;
        if (inputs[i].role != PST_ROLE_NONE)
            return pst_diag_set(diag, PST_E_DATA_SHAPE,
                                "input '%s' is given by two options", name);
        if (rule->role != PST_ROLE_MASK && !is_integers(&inputs[i]))
            return refuse_shape(&inputs[i], rule, true, diag);
        inputs[i].role = rule->role;
        return PST_OK;
    }
    return pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                        "the model has no input '%s'%s", name,
                        rule->role == PST_ROLE_TOKENS ? " for tokens" : "");
}

/* Gives the rule's role to inputs with one of its usual names: only to the
 * first for tokens and targets, to all for other roles, since all get the same
 * values. */
static void assign_usual(const struct rule *rule, struct pst_role_input *inputs,
                         size_t n)
{
    bool done = false;

    for (size_t i = 0; i < n && !done; i++)
        if (inputs[i].role == PST_ROLE_NONE && is_usual(rule, inputs[i].name) &&
            (rule->role == PST_ROLE_MASK || is_integers(&inputs[i]))) {
            inputs[i].role = rule->role;
            done = rule->role <= PST_ROLE_TARGETS;
        }
}

/* Gives the role to the first integer input of at least `rank` dimensions whose
 * name does not suggest another role. */
static void assign_first(enum pst_role role, unsigned rank,
                         struct pst_role_input *inputs, size_t n)
{
    for (size_t i = 0; i < n && pst_roles_index(inputs, n, role) < 0; i++)
        if (inputs[i].role == PST_ROLE_NONE && is_integers(&inputs[i]) &&
            inputs[i].meta.rank >= rank && !is_other(inputs[i].name))
            inputs[i].role = role;
}

/* Gives the role of positions to the first integer input of shape (T), if no
 * input has that role. */
static void assign_positions(struct pst_role_input *inputs, size_t n,
                             const struct pst_role_input *tokens)
{
    const unsigned rank = tokens->meta.rank;

    for (size_t i = 0;
         i < n && pst_roles_index(inputs, n, PST_ROLE_POSITIONS) < 0; i++)
        if (inputs[i].role == PST_ROLE_NONE && is_integers(&inputs[i]) &&
            inputs[i].meta.rank == 1 && rank > 1 &&
            inputs[i].meta.size[0] == tokens->meta.size[rank - 1] &&
            !is_other(inputs[i].name))
            inputs[i].role = PST_ROLE_POSITIONS;
}

/* Decides which kind of mask each is; a mask of neither kind loses its role. */
static enum pst_status decide_masks(const struct pst_role_names *given,
                                    struct pst_role_input *inputs, size_t n,
                                    const struct pst_role_input *tokens,
                                    struct pst_diag *diag)
{
    const struct rule *rule = &rules[PST_COUNT(rules) - 1];

    for (size_t i = 0; i < n; i++) {
        if (inputs[i].role != PST_ROLE_MASK)
            continue;
        inputs[i].role = mask_role(&inputs[i], tokens);
        if (given->mask != NULL &&
            (inputs[i].role == PST_ROLE_NONE ||
             (inputs[i].role == PST_ROLE_ONES && given->packed)))
            return refuse_shape(&inputs[i], rule, given->packed, diag);
    }
    return PST_OK;
}

enum pst_status pst_roles_find(const struct pst_role_names *given,
                               struct pst_role_input *inputs, size_t n,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    int at;

    for (size_t i = 0; i < n; i++)
        inputs[i].role = PST_ROLE_NONE;
    for (size_t r = 0; r < PST_COUNT(rules) && status == PST_OK; r++)
        if (given_name(given, &rules[r]) != NULL)
            status = assign_given(&rules[r], given_name(given, &rules[r]),
                                  inputs, n, diag);
    if (status != PST_OK)
        return status;
    for (size_t r = 0; r < PST_COUNT(rules); r++)
        if (given_name(given, &rules[r]) == NULL)
            assign_usual(&rules[r], inputs, n);
    assign_first(PST_ROLE_TOKENS, 2, inputs, n);
    assign_first(PST_ROLE_TOKENS, 1, inputs, n);
    at = pst_roles_index(inputs, n, PST_ROLE_TOKENS);
    if (given->has_targets)
        assign_first(PST_ROLE_TARGETS, 1, inputs, n);
    else if (at >= 0)
        assign_positions(inputs, n, &inputs[at]);
    return decide_masks(given, inputs, n, at >= 0 ? &inputs[at] : NULL, diag);
}

int pst_roles_index(const struct pst_role_input *inputs, size_t n,
                    enum pst_role role)
{
    for (size_t i = 0; i < n; i++)
        if (inputs[i].role == role)
            return (int)i;
    return -1;
}
