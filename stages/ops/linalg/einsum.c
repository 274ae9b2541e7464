// SPDX-License-Identifier: Apache-2.0
/* einsum and tensordot. Operands are contracted from left to right, each pair
 * in one batched matmul. A label is summed as soon as neither the result nor a
 * later operand has it. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <ctype.h>
#include <string.h>

/* Labels are letters. The dimensions of "..." have labels from 128 on, counted
 * from the last dimension. */
#define ELLIPSIS   128
#define MAX_LABELS 16

struct term {
    struct pst_value *value;
    unsigned n;
    unsigned char label[MAX_LABELS];
};

static int find_label(const struct term *t, unsigned char label)
{
    for (unsigned d = 0; d < t->n; d++)
        if (t->label[d] == label)
            return (int)d;
    return -1;
}

static struct pst_extent size_of(const struct pst_rewrite *w,
                                 const struct term *t, unsigned char label)
{
    const int d = find_label(t, label);

    return d < 0 ? pst_extent(1) : pst_rw_size(w, t->value, (unsigned)d);
}

/* --- steps ---------------------------------------------------------------- */

static void sum_over(struct pst_rewrite *w, struct term *t, const bool *over)
{
    int64_t dims[MAX_LABELS];
    unsigned n = 0, left = 0;

    for (unsigned d = 0; d < t->n; d++) {
        if (over[d])
            dims[n++] = d;
        else
            t->label[left++] = t->label[d];
    }
    t->n = left;
    if (n > 0)
        t->value =
            pst_rw(w, &pst_op_sum_dim_IntList,
                   PST_ARGS(pst_v(t->value), pst_ints(dims, n), pst_b(false)));
}

/* Replaces a label that occurs twice in an operand by the diagonal. */
static void extract_diagonals(struct pst_rewrite *w, struct term *t)
{
    for (unsigned a = 0; a < t->n; a++)
        for (unsigned b = a + 1; b < t->n; b++) {
            const unsigned char label = t->label[a];

            if (t->label[b] != label || w->build->status != PST_OK)
                continue;
            if (!pst_extent_is(w->build, pst_rw_size(w, t->value, a),
                               pst_rw_size(w, t->value, b))) {
                (void)pst_rewrite_fail(w, "a label has two sizes");
                return;
            }
            t->value =
                pst_rw(w, &pst_op_diagonal,
                       PST_ARGS(pst_v(t->value), pst_i(0), pst_i(a), pst_i(b)));
            memmove(&t->label[b], &t->label[b + 1], t->n - b - 1);
            memmove(&t->label[a], &t->label[a + 1], t->n - a - 2);
            t->label[--t->n - 1] = label;
            a = b = 0; /* start again */
        }
}

/* Permutes t's dimensions to the order of labels, skipping labels that t lacks
 * (size 1), then reshapes them to size[3]. */
static struct pst_value *as_matrix(struct pst_rewrite *w, const struct term *t,
                                   const unsigned char *labels, unsigned n,
                                   const struct pst_extent size[3])
{
    int64_t order[MAX_LABELS];
    unsigned k = 0;
    struct pst_value *x;

    for (unsigned i = 0; i < n; i++) {
        const int d = find_label(t, labels[i]);

        if (d >= 0)
            order[k++] = d;
    }
    x = pst_rw_permute(w, t->value, order, k);
    return x == NULL ? NULL : pst_rw_reshape(w, x, 3, size);
}

/* Expands dimensions of size 1 to the other operand's size. */
static void expand_ones(struct pst_rewrite *w, struct term *t,
                        const struct term *like)
{
    struct pst_extent size[PST_MAX_RANK];
    bool more = false;

    for (unsigned d = 0; d < t->n; d++) {
        const struct pst_extent other = size_of(w, like, t->label[d]);

        size[d] = pst_rw_size(w, t->value, d);
        if (size[d].value == 1 && other.value > 1 &&
            pst_extent_is(w->build, size[d], pst_extent(1))) {
            size[d] = other;
            more = true;
        } else if (other.value != 1 && other.value != size[d].value) {
            (void)pst_rewrite_fail(w, "sizes %lld and %lld of a label differ",
                                   (long long)size[d].value,
                                   (long long)other.value);
            return;
        }
    }
    if (more)
        t->value =
            pst_rw(w, &pst_op_expand,
                   PST_ARGS(pst_v(t->value), pst_rw_ints(w, size, t->n)));
}

/* The labels of a and b: in both and kept (both), only in a (left), only in b
 * (right), in both and summed (gone). */
struct plan {
    unsigned char both[MAX_LABELS], left[MAX_LABELS], right[MAX_LABELS],
        gone[MAX_LABELS];
    unsigned n_both, n_left, n_right, n_gone;
};

static void make_plan(const struct term *a, const struct term *b,
                      const bool needed[256], struct plan *p)
{
    *p = (struct plan){.n_both = 0};
    for (unsigned d = 0; d < a->n; d++) {
        const unsigned char label = a->label[d];

        if (find_label(b, label) < 0)
            p->left[p->n_left++] = label;
        else if (needed[label])
            p->both[p->n_both++] = label;
        else
            p->gone[p->n_gone++] = label;
    }
    for (unsigned d = 0; d < b->n; d++)
        if (find_label(a, b->label[d]) < 0)
            p->right[p->n_right++] = b->label[d];
}

static unsigned append_labels(unsigned char *to, unsigned n,
                              const unsigned char *from, unsigned m)
{
    memcpy(to + n, from, m);
    return n + m;
}

static struct pst_extent multiply_sizes(struct pst_rewrite *w,
                                        const struct term *t,
                                        const unsigned char *labels, unsigned n)
{
    struct pst_extent size = pst_extent(1);

    for (unsigned i = 0; i < n; i++)
        size = pst_extent_mul(w->build, size, size_of(w, t, labels[i]));
    return size;
}

/* Contracts a with b into a: sums the common labels that are not in
 * `needed`. */
static void contract(struct pst_rewrite *w, struct term *a, struct term *b,
                     const bool needed[256])
{
    unsigned char labels[3 * MAX_LABELS];
    struct pst_extent size[3], to[3 * MAX_LABELS];
    struct pst_value *x, *y;
    struct plan p;
    unsigned n;

    expand_ones(w, a, b);
    if (w->build->status == PST_OK)
        expand_ones(w, b, a);
    if (w->build->status != PST_OK)
        return;
    make_plan(a, b, needed, &p);
    n = append_labels(labels, 0, p.both, p.n_both);
    n = append_labels(labels, n, p.left, p.n_left);
    n = append_labels(labels, n, p.gone, p.n_gone);
    size[0] = multiply_sizes(w, a, p.both, p.n_both);
    size[1] = multiply_sizes(w, a, p.left, p.n_left);
    size[2] = multiply_sizes(w, a, p.gone, p.n_gone);
    x = as_matrix(w, a, labels, n, size);
    n = append_labels(labels, 0, p.both, p.n_both);
    n = append_labels(labels, n, p.gone, p.n_gone);
    n = append_labels(labels, n, p.right, p.n_right);
    size[1] = size[2];
    size[2] = multiply_sizes(w, b, p.right, p.n_right);
    y = as_matrix(w, b, labels, n, size);
    n = append_labels(labels, 0, p.both, p.n_both);
    n = append_labels(labels, n, p.left, p.n_left);
    n = append_labels(labels, n, p.right, p.n_right);
    if (n > PST_MAX_RANK) {
        (void)pst_rewrite_refuse(w, "more than %d labels at once",
                                 PST_MAX_RANK);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        to[i] = size_of(w, find_label(a, labels[i]) >= 0 ? a : b, labels[i]);
    x = pst_rw(w, &pst_op_bmm, PST_ARGS(pst_v(x), pst_v(y)));
    a->value = x == NULL ? NULL : pst_rw_reshape(w, x, n, to);
    a->n = n;
    memcpy(a->label, labels, n);
}

/* Contracts all operands and permutes the result to the labels of `out`. */
static enum pst_status contract_all(struct pst_rewrite *w, struct term *terms,
                                    unsigned n, const struct term *out)
{
    int64_t order[MAX_LABELS];

    for (unsigned k = 0; k < n && w->build->status == PST_OK; k++) {
        bool needed[256] = {false}, over[MAX_LABELS];

        for (unsigned d = 0; d < out->n; d++)
            needed[out->label[d]] = true;
        for (unsigned i = k + 1; i < n; i++)
            for (unsigned d = 0; d < terms[i].n; d++)
                needed[terms[i].label[d]] = true;
        for (unsigned i = PST_MIN(k, 1u); i < 2 && i <= k; i++) {
            struct term *t = i == 0 ? &terms[0] : &terms[k];

            for (unsigned d = 0; d < t->n; d++)
                over[d] = !needed[t->label[d]] &&
                          (k == 0 || find_label(&terms[0], t->label[d]) < 0);
            sum_over(w, t, over);
        }
        if (k > 0 && w->build->status == PST_OK)
            contract(w, &terms[0], &terms[k], needed);
    }
    if (w->build->status != PST_OK)
        return w->build->status;
    for (unsigned d = 0; d < out->n; d++) {
        const int at = find_label(&terms[0], out->label[d]);

        if (at < 0)
            return pst_rewrite_fail(w, "the result has a label that no operand "
                                       "has");
        order[d] = at;
    }
    return pst_rewrite_out(w, 0,
                           pst_rw_permute(w, terms[0].value, order, out->n));
}

/* --- einsum --------------------------------------------------------------- */

/* Reads the labels of an operand and raises *dots to the rank of its "...". If
 * t->value is NULL, reads the labels of the result, whose "..." has *dots
 * dimensions. */
static bool read_labels(const char **text, struct term *t, unsigned *dots)
{
    const char *at = *text;
    unsigned letters = 0, wide = 0;

    for (const char *c = at; *c != '\0' && *c != ',' && *c != '-'; c++)
        letters += isalpha((unsigned char)*c) != 0;
    if (t->value != NULL) {
        if (letters > t->value->meta.rank)
            return false;
        wide = t->value->meta.rank - letters;
    }
    t->n = 0;
    for (; *at != '\0' && *at != ',' && *at != '-'; at++) {
        if (*at == ' ')
            continue;
        if (t->n + 1 >= MAX_LABELS)
            return false;
        if (isalpha((unsigned char)*at)) {
            t->label[t->n++] = (unsigned char)*at;
            continue;
        }
        if (strncmp(at, "...", 3) != 0)
            return false;
        at += 2;
        if (t->value == NULL)
            wide = *dots;
        *dots = PST_MAX(*dots, wide);
        for (unsigned d = wide; d-- > 0 && t->n < MAX_LABELS;)
            t->label[t->n++] = (unsigned char)(ELLIPSIS + d);
    }
    *text = at;
    return t->value == NULL || t->n == t->value->meta.rank;
}

/* Makes the result of an equation without "->": the dimensions of "...", then
 * the labels that occur once, sorted. */
static void set_implied_result(const struct term *terms, unsigned n,
                               unsigned dots, struct term *out)
{
    for (unsigned d = dots; d-- > 0;)
        out->label[out->n++] = (unsigned char)(ELLIPSIS + d);
    for (unsigned label = 'A'; label <= 'z'; label++) {
        unsigned count = 0;

        for (unsigned k = 0; k < n; k++)
            for (unsigned d = 0; d < terms[k].n; d++)
                count += terms[k].label[d] == label;
        if (count == 1 && out->n < MAX_LABELS)
            out->label[out->n++] = (unsigned char)label;
    }
}

static enum pst_status einsum_rewrite(struct pst_rewrite *w)
{
    const char *text = w->args[0].s;
    const struct pst_arg *in = &w->args[1];
    struct term terms[MAX_LABELS], out = {.n = 0};
    unsigned dots = 0;

    if (in->n == 0 || in->n > MAX_LABELS)
        return pst_rewrite_refuse(w, "%u operands", in->n);
    for (unsigned k = 0; k < in->n; k++) {
        terms[k].value = in->values[k];
        if ((k > 0 && *text++ != ',') || !read_labels(&text, &terms[k], &dots))
            return pst_rewrite_fail(w, "\"%s\" does not fit operand %u",
                                    w->args[0].s, k);
    }
    if (strncmp(text, "->", 2) == 0) {
        text += 2;
        if (!read_labels(&text, &out, &dots) || *text != '\0')
            return pst_rewrite_fail(w, "\"%s\" is not understood",
                                    w->args[0].s);
    } else if (*text == '\0') {
        set_implied_result(terms, in->n, dots, &out);
    } else {
        return pst_rewrite_fail(w, "\"%s\" has more operands than %u",
                                w->args[0].s, in->n);
    }
    for (unsigned k = 0; k < in->n; k++)
        extract_diagonals(w, &terms[k]);
    return contract_all(w, terms, in->n, &out);
}

PST_REWRITE(einsum,
            "aten::einsum(str equation, Tensor[] tensors, *, "
            "int[]? path=None) -> Tensor",
            einsum_rewrite);

/* --- tensordot ------------------------------------------------------------ */

static enum pst_status tensordot_rewrite(struct pst_rewrite *w)
{
    const struct pst_arg *in_a = &w->args[2], *in_b = &w->args[3];
    struct term terms[2], out = {.n = 0};

    if (in_a->n != in_b->n)
        return pst_rewrite_fail(w, "%u and %u dimensions", in_a->n, in_b->n);
    for (unsigned k = 0; k < 2; k++) {
        terms[k].value = pst_rewrite_in(w, k);
        terms[k].n = terms[k].value->meta.rank;
        for (unsigned d = 0; d < terms[k].n; d++)
            terms[k].label[d] = (unsigned char)(1 + d + k * PST_MAX_RANK);
    }
    for (unsigned i = 0; i < in_a->n; i++) {
        const int a = pst_meta_dim(&terms[0].value->meta, in_a->ints[i]);
        const int b = pst_meta_dim(&terms[1].value->meta, in_b->ints[i]);

        if (a < 0 || b < 0 || terms[1].label[b] <= PST_MAX_RANK)
            return pst_rewrite_fail(w, "a dimension is out of range");
        terms[1].label[b] = terms[0].label[a];
    }
    for (unsigned k = 0; k < 2; k++)
        for (unsigned d = 0; d < terms[k].n; d++)
            if (find_label(&terms[1 - k], terms[k].label[d]) < 0)
                out.label[out.n++] = terms[k].label[d];
    return contract_all(w, terms, 2, &out);
}

PST_REWRITE(tensordot,
            "aten::tensordot(Tensor self, Tensor other, int[] dims_self, "
            "int[] dims_other) -> Tensor",
            tensordot_rewrite);
