// SPDX-License-Identifier: Apache-2.0
/* Tests dtypes, metas, single elements and strided copies. */
#include "tests/test.h"

#include "stages/graph/tensor.h"

#include <math.h>
#include <string.h>

static struct pst_meta make(enum pst_dtype dtype, unsigned rank, int64_t a,
                            int64_t b, int64_t c)
{
    const int64_t sizes[] = {a, b, c};

    return pst_meta_make(dtype, rank, sizes);
}

static void promotes_like_pytorch(void **state)
{
    /* The promotion table, with its columns in this order. */
    static const enum pst_dtype order[] = {PST_BOOL, PST_U8,  PST_I8,  PST_I16,
                                           PST_I32,  PST_I64, PST_F16, PST_BF16,
                                           PST_F32,  PST_F64};
    static const char *const table[] = {
        "bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
        "u8 u8 i16 i16 i32 i64 f16 bf16 f32 f64",
        "i8 i16 i8 i16 i32 i64 f16 bf16 f32 f64",
        "i16 i16 i16 i16 i32 i64 f16 bf16 f32 f64",
        "i32 i32 i32 i32 i32 i64 f16 bf16 f32 f64",
        "i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64",
        "f16 f16 f16 f16 f16 f16 f16 f32 f32 f64",
        "bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64",
        "f32 f32 f32 f32 f32 f32 f32 f32 f32 f64",
        "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(order); i++) {
        char row[100], *at = row;

        strcpy(row, table[i]);
        for (size_t k = 0; k < PST_COUNT(order); k++)
            assert_string_equal(
                pst_dtype_name(pst_dtype_promote(order[i], order[k])),
                strsep(&at, " "));
    }
}

static void names_and_codes_read_back(void **state)
{
    enum pst_dtype dtype;

    (void)state;
    for (int i = 0; i < PST_N_DTYPES; i++) {
        const enum pst_dtype d = (enum pst_dtype)i;

        assert_true(pst_dtype_from_name(pst_dtype_name(d), &dtype));
        assert_int_equal(dtype, d);
        assert_true(
            pst_dtype_from_safetensors(pst_dtype_safetensors(d), &dtype));
        assert_int_equal(dtype, d);
    }
    assert_true(pst_dtype_from_pt2(7, &dtype) && dtype == PST_F32);
    assert_true(pst_dtype_from_pt2(13, &dtype) && dtype == PST_BF16);
    assert_true(pst_dtype_from_aten(4, &dtype) && dtype == PST_I64);
    assert_false(pst_dtype_from_pt2(9, &dtype)); /* complex */
    assert_false(pst_dtype_from_pt2(-1, &dtype));
    assert_false(pst_dtype_from_name("f8", &dtype));
}

static void broadcasts(void **state)
{
    struct pst_meta a = make(PST_F32, 2, 2, 1, 0),
                    b = make(PST_F32, 1, 3, 0, 0);
    struct pst_meta r = {.dtype = PST_I8};

    (void)state;
    assert_true(pst_meta_broadcast(&a, &b, &r));
    assert_int_equal(r.rank, 2);
    assert_int_equal(r.size[0], 2);
    assert_int_equal(r.size[1], 3);
    assert_int_equal(r.dtype, PST_I8);
    a = make(PST_F32, 2, 1, 3, 0);
    b = make(PST_F32, 2, 0, 1, 0);               /* sizes 0 and 1 give 0 */
    assert_true(pst_meta_broadcast(&a, &b, &a)); /* in place */
    assert_int_equal(a.size[0], 0);
    assert_int_equal(a.size[1], 3);
    a = make(PST_F32, 1, 2, 0, 0);
    b = make(PST_F32, 1, 3, 0, 0);
    assert_false(pst_meta_broadcast(&a, &b, &r));
    b = make(PST_F32, 1, 0, 0, 0);
    assert_false(pst_meta_broadcast(&a, &b, &r));
}

static void recognises_layouts(void **state)
{
    struct pst_meta m = make(PST_F32, 3, 2, 3, 4);

    (void)state;
    assert_true(pst_meta_is_contiguous(&m) && pst_meta_is_dense(&m));
    assert_int_equal(pst_meta_span(&m), 96);
    m.stride[0] = 1; /* (2, 3, 4) permuted: strides (1, 8, 2) */
    m.stride[1] = 8;
    m.stride[2] = 2;
    assert_false(pst_meta_is_contiguous(&m));
    assert_true(pst_meta_is_dense(&m));
    m.stride[1] = 9; /* leaves a gap */
    assert_false(pst_meta_is_dense(&m));
    m.stride[1] = 0; /* an expanded dimension */
    assert_false(pst_meta_is_dense(&m));
    m = make(PST_F32, 3, 2, 1, 4);
    m.stride[1] = 77; /* the stride of size 1 does not count */
    assert_true(pst_meta_is_contiguous(&m) && pst_meta_is_dense(&m));
    m = make(PST_F32, 2, 0, 4, 0);
    m.stride[0] = 99;
    assert_true(pst_meta_is_contiguous(&m) && pst_meta_is_dense(&m));
    assert_int_equal(pst_meta_span(&m), 0);
    m = make(PST_F64, 0, 0, 0, 0);
    assert_true(pst_meta_is_contiguous(&m) && pst_meta_is_dense(&m));
    assert_int_equal(pst_meta_span(&m), 8);
    assert_int_equal(pst_meta_dim(&m, -1), 0);
    assert_int_equal(pst_meta_dim(&m, 1), -1);
    m = make(PST_F32, 3, 2, 3, 4);
    assert_int_equal(pst_meta_dim(&m, -3), 0);
    assert_int_equal(pst_meta_dim(&m, 3), -1);
    assert_int_equal(pst_meta_offset(&m, 23), 23);
}

static void refuses_impossible_metas(void **state)
{
    struct pst_meta m = make(PST_F32, 2, INT64_MAX / 2, 4, 0);
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "too large"));
    m = make(PST_F32, 1, -1, 0, 0);
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
    m = make(PST_F32, 1, 4, 0, 0);
    m.stride[0] = INT64_MAX / 2;
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
    m.stride[0] = -1;
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
    m = make(PST_I64, 1, INT64_MAX / 8 + 1, 0, 0);
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
    m.rank = PST_MAX_RANK + 1;
    assert_int_equal(pst_meta_check(&m, &diag), PST_ERR_SHAPE);
}

static void check_store(enum pst_dtype dtype, double x, double want)
{
    double raw[1];

    pst_store_f64(dtype, raw, 0, x);
    if (isnan(want))
        assert_true(isnan(pst_load_f64(dtype, raw, 0)));
    else
        assert_true(pst_load_f64(dtype, raw, 0) == want);
}

static void rounds_half_to_even(void **state)
{
    (void)state;
    check_store(PST_BF16, 1.00390625, 1.0); /* a tie: rounds to even */
    check_store(PST_BF16, 1.01171875, 1.015625);
    check_store(PST_BF16, 3.4e38, INFINITY);
    check_store(PST_BF16, -1e-40, -0x1p-133); /* subnormal */
    check_store(PST_BF16, NAN, NAN);
    check_store(PST_F16, 65519.0, 65504.0);
    check_store(PST_F16, 65520.0, INFINITY);
    check_store(PST_F16, -1e9, -INFINITY);
    check_store(PST_F16, 1.0 + 0x1p-11, 1.0);
    check_store(PST_F16, 1.0 + 3 * 0x1p-11, 1.0 + 0x1p-9);
    check_store(PST_F16, 0x1p-25, 0.0); /* half of the smallest: to even */
    check_store(PST_F16, 0x1.002p-25, 0x1p-24);
    check_store(PST_F16, 3 * 0x1p-25, 0x1p-23);
    check_store(PST_F16, 0x1.ff8p-15, 0x1.ff8p-15); /* largest subnormal */
    check_store(PST_F16, 0x1.fffp-15, 0x1p-14);     /* carries into normal */
    check_store(PST_F16, NAN, NAN);
    check_store(PST_F16, INFINITY, INFINITY);
}

/* Every 16-bit pattern survives conversion to double and back. */
static void halves_read_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        for (int k = 0; k < 2; k++) {
            const enum pst_dtype dtype = k ? PST_F16 : PST_BF16;
            const uint16_t from = (uint16_t)i;
            uint16_t to = 0;
            const double x = pst_load_f64(dtype, &from, 0);

            pst_store_f64(dtype, &to, 0, x);
            if (isnan(x))
                assert_true(isnan(pst_load_f64(dtype, &to, 0)));
            else
                assert_int_equal(from, to);
        }
    }
}

static void casts_like_pytorch(void **state)
{
    int64_t raw[1];

    (void)state;
    check_store(PST_I64, 1.9, 1.0);
    check_store(PST_I64, -1.9, -1.0);
    check_store(PST_I64, 1e300, (double)INT64_MIN);
    check_store(PST_U8, 300.0, 44.0);
    check_store(PST_U8, -1.0, 255.0);
    check_store(PST_I8, 200.0, -56.0);
    check_store(PST_I32, 3e9, (double)INT32_MIN);
    check_store(PST_I32, NAN, (double)INT32_MIN);
    check_store(PST_I32, -2147483648.9, (double)INT32_MIN);
    check_store(PST_I32, 2147483647.9, 2147483647.0);
    check_store(PST_I16, 70000.0, 4464.0);
    check_store(PST_U8, 3e9, 0.0); /* low bits of INT32_MIN */
    check_store(PST_I8, 5000000300.0, 0.0);
    check_store(PST_BOOL, NAN, 1.0);
    check_store(PST_BOOL, -0.0, 0.0);
    check_store(PST_BOOL, 0.5, 1.0);
    /* An integer is rounded once: 2^60 + 2^36 + 1 is above the tie between two
     * floats, and a rounding to double before would lose the 1. */
    pst_store_i64(PST_F32, raw, 0, (1LL << 60) + (1LL << 36) + 1);
    assert_true(pst_load_f64(PST_F32, raw, 0) == 0x1p60 + 0x1p37);
}

/* Copies (2, 3), transposed, into (3, 2) with a gap, and converts it. */
static void copies_strided(void **state)
{
    static const float src[] = {0.5f, 1.5f, 2.5f, -3.5f, 4.5f, 5.5f};
    struct pst_meta from = make(PST_F32, 2, 3, 2, 0);
    struct pst_meta to = make(PST_I32, 2, 3, 2, 0);
    int32_t dst[9];
    int64_t same[6];

    (void)state;
    from.stride[0] = 1;
    from.stride[1] = 3;
    to.stride[0] = 3;
    memset(dst, 0x55, sizeof(dst));
    pst_copy_strided(&from, src, &to, dst);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dst[3 * i], (int)src[i]);
        assert_int_equal(dst[3 * i + 1], (int)src[i + 3]);
        assert_int_equal(dst[3 * i + 2], 0x55555555); /* the gap is unchanged */
    }
    from = make(PST_I32, 3, 1, 2, 3); /* broadcast source, larger integers */
    from.stride[0] = from.stride[1] = 0;
    pst_copy_strided(
        &from, dst, &(struct pst_meta){PST_I64, 3, {1, 2, 3}, {9, 3, 1}}, same);
    for (int i = 0; i < 6; i++)
        assert_int_equal(same[i], dst[i % 3]);
    from = make(PST_F32, 2, 0, 2, 0);
    /* Empty tensors: nothing is read. */
    pst_copy_strided(&from, NULL, &from, NULL);
    from = make(PST_F32, 0, 0, 0, 0);
    to = make(PST_F64, 0, 0, 0, 0);
    pst_copy_strided(&from, src, &to, same);
    assert_true(pst_load_f64(PST_F64, same, 0) == 0.5);
}

static void prints_metas(void **state)
{
    struct pst_meta m = make(PST_F32, 2, 2, 3, 0);
    char text[PST_META_TEXT];

    (void)state;
    assert_string_equal(pst_meta_text(&m, text), "f32[2, 3]");
    m.stride[0] = 1;
    m.stride[1] = 2;
    assert_string_equal(pst_meta_text(&m, text), "f32[2, 3]:(1, 2)");
    m.rank = 8;
    for (int d = 0; d < 8; d++)
        m.size[d] = m.stride[d] = INT64_MAX - d;
    assert_true(strlen(pst_meta_text(&m, text)) < PST_META_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promotes_like_pytorch),
        cmocka_unit_test(names_and_codes_read_back),
        cmocka_unit_test(broadcasts),
        cmocka_unit_test(recognises_layouts),
        cmocka_unit_test(refuses_impossible_metas),
        cmocka_unit_test(rounds_half_to_even),
        cmocka_unit_test(halves_read_back),
        cmocka_unit_test(casts_like_pytorch),
        cmocka_unit_test(copies_strided),
        cmocka_unit_test(prints_metas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
