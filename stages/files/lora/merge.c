// SPDX-License-Identifier: Apache-2.0
#include "stages/files/lora/merge.h"

#define TAG PST_TAG_ARCHIVE

struct merger {
    enum pst_dtype dtype; /* dtype in which the sum is computed */
    int64_t in, out, rank;
    bool transposed;
    double scale;
    /* converted to dtype; row: one row of B A */
    void *weight, *down, *up, *row;
};

/* W += scale * B A: computes a row of the product, then adds it in the layout
 * of W. */
#define ADD(name, type)                                                        \
    static void name(const struct merger *m)                                   \
    {                                                                          \
        const type *a = m->down, *b = m->up, scale = (type)m->scale;           \
        type *w = m->weight, *row = m->row;                                    \
                                                                               \
        for (int64_t o = 0; o < m->out; o++) {                                 \
            for (int64_t i = 0; i < m->in; i++)                                \
                row[i] = 0;                                                    \
            for (int64_t k = 0; k < m->rank; k++)                              \
                for (int64_t i = 0; i < m->in; i++)                            \
                    row[i] += b[o * m->rank + k] * a[k * m->in + i];           \
            for (int64_t i = 0; i < m->in; i++)                                \
                w[m->transposed ? i * m->out + o : o * m->in + i] +=           \
                    scale * row[i];                                            \
        }                                                                      \
    }
ADD(add_f32, float)
ADD(add_f64, double)
#undef ADD

/* Returns a contiguous copy in m->dtype; NULL with a diagnosis. */
static void *convert_tensor(const struct merger *m, const struct pst_meta *from,
                            const void *data, struct pst_diag *diag)
{
    struct pst_meta to = *from;
    void *ret;

    to.dtype = m->dtype;
    ret = pst_alloc(TAG, pst_meta_bytes(&to));
    if (ret == NULL)
        (void)pst_diag_nomem(diag, pst_meta_bytes(&to));
    else
        pst_copy_strided(from, data, &to, ret);
    return ret;
}

static enum pst_status load_tensor(const struct merger *m,
                                   const struct pst_safetensors_entry *entry,
                                   void **ret, struct pst_diag *diag)
{
    void *data = pst_alloc(TAG, entry->bytes);
    enum pst_status status;

    if (data == NULL)
        return pst_diag_nomem(diag, entry->bytes);
    status = pst_safetensors_read(entry, 0, entry->bytes, data, diag);
    if (status == PST_OK) {
        *ret = convert_tensor(m, &entry->meta, data, diag);
        status = *ret != NULL ? PST_OK : PST_ERR_NOMEM;
    }
    pst_free(data);
    return status;
}

enum pst_status pst_adapter_merge(const struct pst_adapter *adapter,
                                  pst_state_find_fn find, void *ctx,
                                  const struct pst_safetensors_entry *weight,
                                  void *data, struct pst_diag *diag)
{
    const struct pst_safetensors_entry *down, *up;
    struct merger m = {.transposed = adapter->transposed};
    struct pst_meta sum = weight->meta;
    enum pst_status status = find(ctx, adapter->down, &down, diag);

    if (status == PST_OK)
        status = find(ctx, adapter->up, &up, diag);
    if (status == PST_OK)
        status = pst_adapter_check(adapter, &weight->meta, &down->meta,
                                   &up->meta, diag);
    if (status != PST_OK)
        return status;
    sum.dtype = m.dtype = sum.dtype == PST_F64 ? PST_F64 : PST_F32;
    m.rank = down->meta.size[0];
    m.in = down->meta.size[1];
    m.out = up->meta.size[0];
    m.scale = adapter->alpha / (double)m.rank;
    m.weight = convert_tensor(&m, &weight->meta, data, diag);
    m.row = pst_alloc(TAG, (size_t)m.in * pst_dtype_size(m.dtype));
    status = m.weight == NULL || m.row == NULL
                 ? pst_diag_nomem(diag, weight->bytes)
                 : load_tensor(&m, down, &m.down, diag);
    if (status == PST_OK)
        status = load_tensor(&m, up, &m.up, diag);
    if (status == PST_OK) {
        (m.dtype == PST_F64 ? add_f64 : add_f32)(&m);
        pst_copy_strided(&sum, m.weight, &weight->meta, data);
    }
    pst_free(m.weight);
    pst_free(m.down);
    pst_free(m.up);
    pst_free(m.row);
    return status;
}
