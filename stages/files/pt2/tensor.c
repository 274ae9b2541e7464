// SPDX-License-Identifier: Apache-2.0
/* Converts records of tensors to the metas of a graph. */
#include "stages/files/pt2/document.h"

#include "stages/base/checked.h"

#include <stdio.h>
#include <string.h>

/* Names of all dtype codes that PyTorch writes, for messages. */
static const char *const dtype_names[] = {
    "unknown",        "uint8",           "int8",
    "int16",          "int32",           "int64",
    "float16",        "float32",         "float64",
    "complex32",      "complex64",       "complex128",
    "bool",           "bfloat16",        "type 14",
    "type 15",        "type 16",         "type 17",
    "type 18",        "type 19",         "type 20",
    "type 21",        "type 22",         "type 23",
    "type 24",        "type 25",         "type 26",
    "type 27",        "uint16",          "float8_e4m3fn",
    "float8_e5m2",    "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "uint32",          "uint64",
};

const char *pst_doc_dtype_name(int64_t code)
{
    if (code < 0 || code >= (int64_t)PST_COUNT(dtype_names))
        return "an unknown type";
    return dtype_names[code];
}

bool pst_doc_is_complex(int64_t code, enum pst_dtype *ret_part)
{
    *ret_part = code == 11 ? PST_F64 : PST_F32;
    return code == 10 || code == 11;
}

/* Context for checking one record. */
struct judge {
    const struct pst_doc_tensor *tensor;
    const struct pst_symbols *symbols;
    struct pst_diag *diag;
};

/* Evaluates size number i of the list named `key`; i < 0: a single size. */
static enum pst_status read_size(const struct judge *j,
                                 const struct pst_doc_size *size,
                                 const char *key, int i, int64_t *ret)
{
    static const struct pst_symbols none;
    struct pst_number x = {0};
    enum pst_status status;
    char at[16] = "";

    *ret = size->value;
    if (size->expr == NULL)
        return PST_OK;
    status = pst_symbols_eval(j->symbols != NULL ? j->symbols : &none,
                              size->expr->text, &x, j->diag);
    if (status != PST_OK) {
        pst_diag_prefix(j->diag, "%s", j->tensor->name);
        return status;
    }
    if (x.kind == PST_NUMBER_EXACT && x.d == 1 && x.n >= 0) {
        *ret = x.n;
        return PST_OK;
    }
    if (i >= 0)
        snprintf(at, sizeof(at), "[%d]", i);
    return pst_diag_set(j->diag, PST_E_PT2_INCONSISTENT,
                        "%s: %s%s is not an integer >= 0", j->tensor->name, key,
                        at);
}

/* Evaluates the offset in the storage. An offset that depends on data, as for
 * the result of a loop, becomes 0; nothing uses it. */
static enum pst_status read_offset(const struct judge *j,
                                   struct pst_doc_meta *t)
{
    static const struct pst_symbols none;
    const struct pst_doc_size *offset = &j->tensor->offset;
    bool known = true;
    enum pst_status status = PST_OK;

    if (offset->expr != NULL)
        status = pst_symbols_are_known(j->symbols != NULL ? j->symbols : &none,
                                       offset->expr->text, &known, j->diag);
    if (status != PST_OK || !known)
        return status;
    if (offset->expr != NULL)
        t->from = offset->expr->text;
    return read_size(j, offset, "storage_offset", -1, &t->offset);
}

static enum pst_status read_sizes(const struct judge *j, struct pst_doc_meta *t)
{
    enum pst_status status = PST_OK;
    const unsigned n = j->tensor->rank;

    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        const struct pst_doc_size *size = &j->tensor->sizes[i];

        status = read_size(j, size, "sizes", (int)i, &t->meta.size[i]);
        t->dims[i] = size->expr != NULL ? size->expr->text : NULL;
        t->symbolic = t->symbolic || size->expr != NULL;
    }
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        const struct pst_doc_size *stride = &j->tensor->strides[i];

        status = read_size(j, stride, "strides", (int)i, &t->meta.stride[i]);
        t->strides[i] = stride->expr != NULL ? stride->expr->text : NULL;
    }
    t->meta.rank = n;
    return status;
}

/* Turns complex numbers into pairs, with an additional last dimension of two
 * parts. */
static enum pst_status make_pairs(struct pst_doc_meta *t, const char *where,
                                  struct pst_diag *diag)
{
    bool fits =
        t->meta.rank < PST_MAX_RANK && !PST_MUL(t->offset, 2, &t->offset);

    for (unsigned i = 0; i < t->meta.rank && fits; i++)
        fits = !PST_MUL(t->meta.stride[i], 2, &t->meta.stride[i]);
    if (!fits)
        return pst_diag_set(diag, PST_E_PT2_COMPLEX,
                            "%s: complex tensors of %u dimensions or of this "
                            "size are not supported",
                            where, t->meta.rank);
    memset(t->strides, 0, sizeof(t->strides));
    t->from = NULL;
    t->pairs = true;
    t->meta.size[t->meta.rank] = 2;
    t->meta.stride[t->meta.rank++] = 1;
    return pst_meta_check(&t->meta, diag);
}

/* Checks that all offsets from the beginning of the storage to the tensor's
 * last element are in range. */
static enum pst_status check_extent(const struct pst_doc_meta *t,
                                    const char *where, struct pst_diag *diag)
{
    int64_t last = t->offset, step;

    if (pst_meta_numel(&t->meta) == 0)
        return PST_OK;
    for (unsigned i = 0; i < t->meta.rank; i++)
        if (PST_MUL(t->meta.size[i] - 1, t->meta.stride[i], &step) ||
            PST_ADD(last, step, &last))
            last = INT64_MAX;
    if (last > INT64_MAX / 16)
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT,
                            "%s: sizes and strides are out of range", where);
    return PST_OK;
}

enum pst_status pst_doc_meta(const struct pst_doc_tensor *tensor,
                             const struct pst_symbols *symbols,
                             struct pst_doc_meta *ret, struct pst_diag *diag)
{
    const struct judge j = {tensor, symbols, diag};
    const char *where = tensor->name;
    struct pst_doc_meta t = {0};
    enum pst_status status;
    bool pairs;

    pairs = pst_doc_is_complex(tensor->dtype, &t.meta.dtype);
    if (!pairs && !pst_dtype_from_pt2(tensor->dtype, &t.meta.dtype))
        return pst_diag_set(diag, PST_E_PT2_DTYPE,
                            "%s: dtype %s is not supported", where,
                            pst_doc_dtype_name(tensor->dtype));
    if (tensor->layout != 7)
        return pst_diag_set(diag, PST_E_PT2_LAYOUT,
                            "%s: only strided tensors are supported", where);
    if (tensor->rank > PST_MAX_RANK)
        return pst_diag_set(diag, PST_E_PT2_RANK,
                            "%s: tensors of more than %d dimensions are not "
                            "supported",
                            where, PST_MAX_RANK);
    status = read_sizes(&j, &t);
    if (status != PST_OK)
        return status;
    status = pst_meta_check(&t.meta, diag);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "%s", where);
        return status;
    }
    status = read_offset(&j, &t);
    if (status == PST_OK && pairs)
        status = make_pairs(&t, where, diag);
    if (status == PST_OK)
        status = check_extent(&t, where, diag);
    if (status == PST_OK)
        *ret = t;
    return status;
}
