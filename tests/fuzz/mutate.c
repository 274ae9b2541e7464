// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Location of a value in the document. */
struct place {
    json_t *parent;
    const char *key; /* NULL: in an array, at `index` */
    size_t index;
};

static const json_int_t numbers[] = {
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    8,
    13,
    64,
    -2,
    -9,
    255,
    4096,
    65536,
    INT32_MAX,
    INT32_MIN,
    (json_int_t)UINT32_MAX + 1,
    INT64_MAX,
    INT64_MIN,
    (json_int_t)1 << 62,
    INT64_MAX / 8 + 1,
};

static const char *const words[] = {
    "",
    "x",
    "\xc3\xa4\xe2\x82\xac",
    "%s%n",
    "../../etc/passwd",
    "s0",
    "u0",
    "2*s77 + 1",
    "((((((((((((((((((((1))))))))))))))))))))",
    "9223372036854775807*9223372036854775807",
    "torch.ops.aten.add_.Tensor",
    "torch.ops.aten.copy_.default",
    "torch.ops.aten.view.default",
    "torch.ops.aten.as_strided.default",
    "torch.ops.aten.slice.Tensor",
    "torch.ops.aten.expand.default",
    "torch.ops.aten.sum.default",
    "torch.ops.aten.cat.default",
    "torch.ops.aten.index.Tensor",
    "torch.ops.aten.index_put_.default",
    "torch.ops.aten.embedding.default",
    "torch.ops.aten.conv2d.default",
    "torch.ops.aten.convolution.default",
    "torch.ops.aten.max_pool2d.default",
    "torch.ops.aten.lstm.input",
    "torch.ops.aten.split.Tensor",
    "torch.ops.aten.scaled_dot_product_attention.default",
    "torch.ops.aten.cross_entropy_loss.default",
    "torch.ops.aten.native_layer_norm.default",
    "torch.ops.aten.einsum.default",
    "torch.ops.aten.repeat.default",
    "torch.ops.aten.pad.default",
    "torch.ops.higher_order.cond",
    "torch.ops.higher_order.while_loop",
    "_operator.getitem",
    "_operator.mul",
    "math.trunc",
    "torch.sym_max",
};

static const char *const kinds[] = {
    "as_none",    "as_tensor",        "as_tensors",  "as_int",
    "as_ints",    "as_float",         "as_floats",   "as_string",
    "as_strings", "as_sym_int",       "as_sym_ints", "as_scalar_type",
    "as_bool",    "as_bools",         "as_device",   "as_layout",
    "as_graph",   "as_memory_format", "as_expr",     "as_optional_tensors",
    "as_complex", "as_sym_bool",      "as_sym_float"};

unsigned mutator_pick(struct mutator *m, unsigned n)
{
    m->state ^= m->state << 13;
    m->state ^= m->state >> 7;
    m->state ^= m->state << 17;
    return (unsigned)((m->state >> 11) % n);
}

static size_t count(const json_t *at)
{
    const char *key;
    size_t n = 1, i;
    json_t *v;

    if (json_is_object(at))
        json_object_foreach((json_t *)at, key, v) n += count(v);
    else if (json_is_array(at))
        json_array_foreach(at, i, v) n += count(v);
    return n;
}

static json_t *value_at(const struct place *p)
{
    return p->key != NULL ? json_object_get(p->parent, p->key)
                          : json_array_get(p->parent, p->index);
}

static void set_value(const struct place *p, json_t *value)
{
    if (p->key != NULL)
        json_object_set_new(p->parent, p->key, value);
    else
        json_array_set_new(p->parent, p->index, value);
}

/* Finds the n-th value below `at`, in order; counts n down. Returns 0 if there
 * are fewer. */
static int find_nth(json_t *at, size_t *n, struct place *ret)
{
    const char *key;
    size_t i;
    json_t *v;

    if (json_is_object(at)) {
        json_object_foreach(at, key, v)
        {
            if ((*n)-- == 0) {
                *ret = (struct place){at, key, 0};
                return 1;
            }
            if (find_nth(v, n, ret))
                return 1;
        }
    } else if (json_is_array(at)) {
        json_array_foreach(at, i, v)
        {
            if ((*n)-- == 0) {
                *ret = (struct place){at, NULL, i};
                return 1;
            }
            if (find_nth(v, n, ret))
                return 1;
        }
    }
    return 0;
}

/* Picks a value: mostly in the nodes of the graph, if it is a program. */
static struct place pick_place(struct mutator *m, json_t *root)
{
    json_t *module = json_object_get(root, "graph_module");
    json_t *graph = json_object_get(module, "graph");
    struct place ret = {NULL, NULL, 0};
    size_t n = 0;

    if (json_is_object(graph) && mutator_pick(m, 4))
        root = graph;
    if (json_is_array(json_object_get(graph, "nodes")) &&
        json_array_size(json_object_get(graph, "nodes")) > 0 &&
        mutator_pick(m, 4))
        root = json_object_get(graph, "nodes");
    if (count(root) > 1)
        n = mutator_pick(m, (unsigned)count(root) - 1);
    (void)find_nth(root, &n, &ret);
    return ret;
}

/* Returns another value of the document, with the same key if one is found
 * soon. */
static json_t *pick_other(struct mutator *m, json_t *root,
                          const struct place *like)
{
    struct place p = pick_place(m, root);

    for (unsigned i = 0; i < 60; i++) {
        if (p.parent == NULL)
            return json_null();
        if (json_typeof(value_at(&p)) == json_typeof(value_at(like)) &&
            (like->key == NULL ||
             (p.key != NULL && strcmp(p.key, like->key) == 0)))
            break;
        p = pick_place(m, root);
    }
    return json_deep_copy(value_at(&p));
}

static void disturb(struct mutator *m, json_t *root, const struct place *p)
{
    json_t *v = value_at(p);

    switch (json_typeof(v)) {
    case JSON_INTEGER:
        set_value(p, json_integer(mutator_pick(m, 2)
                                      ? numbers[mutator_pick(m, COUNT(numbers))]
                                      : json_integer_value(v) - 3 +
                                            (json_int_t)mutator_pick(m, 7)));
        return;
    case JSON_STRING:
        set_value(p, mutator_pick(m, 2)
                         ? pick_other(m, root, p)
                         : json_string(words[mutator_pick(m, COUNT(words))]));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        set_value(p, json_boolean(!json_boolean_value(v)));
        return;
    case JSON_REAL:
        set_value(p,
                  mutator_pick(m, 2) ? json_real(1e308) : json_string("NaN"));
        return;
    default:
        set_value(p, pick_other(m, root, p));
    }
}

/* Changes {"as_int": 3} to {"as_tensor": 3}, or to another value of that kind
 * in the document. */
static void rename_kind(struct mutator *m, json_t *root, const struct place *p)
{
    json_t *v = value_at(p), *got;
    const char *kind = kinds[mutator_pick(m, COUNT(kinds))];
    struct place of;
    void *first;

    if (!json_is_object(v) || json_object_size(v) == 0) {
        set_value(p, json_null());
        return;
    }
    first = json_object_iter(v);
    of = (struct place){v, kind, 0};
    json_object_set(v, kind, json_object_iter_value(first));
    got = mutator_pick(m, 2) ? pick_other(m, root, &of)
                             : json_incref(json_object_get(v, kind));
    json_object_clear(v);
    json_object_set_new(v, kind, got);
}

/* Duplicates an element of an array, or swaps two. */
static void reorder(struct mutator *m, const struct place *p)
{
    json_t *v = value_at(p), *a, *b;
    unsigned n, i, j;

    if (p->key == NULL)
        v = p->parent;
    n = (unsigned)json_array_size(v);
    if (!json_is_array(v) || n == 0) {
        set_value(p, json_array());
        return;
    }
    i = mutator_pick(m, n);
    j = mutator_pick(m, n);
    a = json_deep_copy(json_array_get(v, i));
    b = json_deep_copy(json_array_get(v, j));
    if (mutator_pick(m, 2)) {
        json_array_set_new(v, i, b);
        json_array_set_new(v, j, a);
    } else {
        json_array_insert_new(v, i, b);
        json_decref(a);
    }
}

void mutate(struct mutator *m, json_t *root)
{
    const struct place p = pick_place(m, root);

    if (p.parent == NULL) /* the document is empty */
        return;
    switch (mutator_pick(m, 10)) {
    case 0:
        if (p.key != NULL)
            json_object_del(p.parent, p.key);
        else
            json_array_remove(p.parent, p.index);
        return;
    case 1:
        set_value(&p, json_null());
        return;
    case 2:
        rename_kind(m, root, &p);
        return;
    case 3:
    case 4:
        reorder(m, &p);
        return;
    case 5: {
        const struct place q = pick_place(m, root);

        set_value(&p, json_deep_copy(value_at(&q)));
        return;
    }
    default:
        disturb(m, root, &p);
    }
}
