// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/samples/sample.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct sample samples[] = {
#define SAMPLE(text)       {text, 0},
#define KERNELS_ONLY(text) {text, SAMPLE_NO_GRADIENT},
#include "tests/ops/samples/conv.def"
#include "tests/ops/samples/create.def"
#include "tests/ops/samples/functions.def"
#include "tests/ops/samples/index.def"
#include "tests/ops/samples/linalg.def"
#include "tests/ops/samples/loss.def"
#include "tests/ops/samples/order.def"
#include "tests/ops/samples/pointwise.def"
#include "tests/ops/samples/reduce.def"
#include "tests/ops/samples/view.def"
};

unsigned sample_count(void)
{
    return (unsigned)PST_COUNT(samples);
}

const struct sample *sample_at(unsigned i)
{
    return &samples[i];
}

/* True if text[i] is an F that stands for a dtype. */
static bool is_dtype(const char *text, size_t i)
{
    return text[i] == 'F' && (i == 0 || !isalnum((unsigned char)text[i - 1])) &&
           strchr("[),;", text[i + 1]) != NULL;
}

enum pst_status sample_parse(const struct sample *sample, enum pst_dtype dtype,
                             struct pst_graph **ret, struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_add(&text, "graph next_id=0 {\n");
    for (size_t i = 0; sample->text[i] != '\0'; i++) {
        if (is_dtype(sample->text, i))
            pst_str_add(&text, pst_dtype_name(dtype));
        else if (sample->text[i] == ';')
            pst_str_add(&text, "\n");
        else
            pst_str_addn(&text, &sample->text[i], 1);
    }
    pst_str_add(&text, "\n}\n");
    status = pst_graph_parse(pst_str_text(&text), ret, diag);
    pst_str_fini(&text);
    return status;
}

struct pst_node *sample_node(const struct pst_graph *graph)
{
    return graph->nodes.at[graph->nodes.n - 1];
}

/* --- filling -------------------------------------------------------------- */

static double special(int64_t i)
{
    static const double numbers[] = {NAN,  INFINITY, -INFINITY, 0.0,
                                     -0.0, 1.0,      -1.0,      0.5,
                                     -2.5, 20.0,     -20.0,     1e-30};

    return numbers[i % (int64_t)PST_COUNT(numbers)];
}

/* Returns element number i of n of a floating input. stream: of the key. */
static double floating(char kind, const struct pst_rng_key *key,
                       const uint32_t stream[4], int64_t i, int64_t n)
{
    switch (kind) {
    case 'p':
    case 'c':
        return 0.2 + 1.8 * (double)pst_rng_f32(key, (uint64_t)i);
    case 'u':
        return 1.8 * (double)pst_rng_f32(key, (uint64_t)i) - 0.9;
    case 'd': /* a permutation: 7919 is prime and larger than any sample */
        return (double)(i * 7919 % n) * 0.25 - 0.1 * (double)n + 0.03;
    case 's':
        return special(i);
    default:
        return pst_rng_normal_of(stream, (uint64_t)i);
    }
}

static int64_t whole_number(const char *name, const struct pst_rng_key *key,
                            int64_t i)
{
    const double u = (double)pst_rng_f32(key, (uint64_t)i);

    if (name[0] == 'i')
        return (int64_t)(u * atof(name + 1));
    if (name[0] == 'p')
        return 1 + (int64_t)(u * 5.0);
    return (int64_t)(u * 11.0) - 5;
}

void *sample_fill(const struct pst_value *value)
{
    const struct pst_meta *m = &value->meta;
    const int64_t n = pst_meta_numel(m);
    struct pst_rng_key key = {.seed = 1};
    uint32_t stream[4];
    void *data = pst_calloc(PST_TAG_TEST, pst_meta_span(m) + 1, 1);

    for (const char *c = value->name; *c != '\0'; c++)
        key.node = key.node * 31u + (uint32_t)*c;
    pst_rng_stream(&key, stream);
    for (int64_t i = 0; data != NULL && i < n; i++) {
        const int64_t at = pst_meta_offset(m, i);

        if (pst_dtype_kind(m->dtype) == PST_KIND_FLOAT)
            pst_store_f64(m->dtype, data, at,
                          floating(value->name[0], &key, stream, i, n));
        else if (m->dtype == PST_BOOL)
            pst_store_i64(m->dtype, data, at,
                          pst_rng_f32(&key, (uint64_t)i) < 0.5f);
        else
            pst_store_i64(m->dtype, data, at,
                          whole_number(value->name, &key, i));
    }
    return data;
}

void sample_other_bytes(const struct pst_meta *meta, void *data)
{
    static const uint8_t other[] = {0xff, 2, 1, 0x80, 254, 3, 128, 16, 255};
    uint8_t *byte = data;

    if (meta->dtype == PST_BOOL)
        for (size_t i = 0; i < pst_meta_span(meta); i++)
            byte[i] = byte[i] == 0 ? 0 : other[i % sizeof(other)];
}
