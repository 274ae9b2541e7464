// SPDX-License-Identifier: Apache-2.0
/* Tests invariants of every row of the registry. */
#include "tests/test.h"

#include "stages/base/map.h"
#include "stages/ops/core/op.h"

#include <string.h>

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static void rows_are_whole(void **state)
{
    (void)state;
    assert_true(pst_registry_count() > 0);
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        const struct pst_schema *schema = pst_op_schema(op);
        const unsigned runs_not = PST_OP_VIEW | PST_OP_EFFECT | PST_OP_MARKER;

        assert_non_null(schema);
        if (op->rewrite != NULL) {
            if (op->infer != NULL || op->vjp != NULL || pst_op_runs(op))
                fail_msg("%s is a composition and more", schema->name);
            continue;
        }
        if (op->infer == NULL || op->vjp == NULL)
            fail_msg("%s has no infer or no vjp", schema->name);
        if (!pst_op_runs(op) && (op->flags & runs_not) == 0)
            fail_msg("%s is PST_OP_NO_KERNEL in ops.def and no view",
                     schema->name);
        if (pst_op_runs(op) && (op->flags & PST_OP_VIEW))
            fail_msg("%s is a view and has kernels", schema->name);
        if (pst_op_runs(op) != (pst_op_reference(op) != NULL))
            fail_msg("%s has no reference", schema->name);
        if (pst_op_family(op)[0] == '\0')
            fail_msg("%s has no family", schema->name);
        for (unsigned k = 0; k < schema->n_args; k++)
            if (schema->args[k].written && !(op->flags & PST_OP_EFFECT))
                fail_msg("%s writes its argument", schema->name);
    }
}

static void names_find_their_rows(void **state)
{
    (void)state;
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);

        assert_ptr_equal(pst_op_find(pst_op_schema(op)->name), op);
        if (pst_op_refusal(pst_op_schema(op)->name) != NULL)
            fail_msg("%s has a row and stands in stages/ops/core/refused.def",
                     pst_op_schema(op)->name);
    }
    assert_null(pst_op_find("aten.add.Tensors"));
    assert_ptr_equal(pst_op_find("aten.swapaxes.default"),
                     pst_op_find("aten.transpose.int"));
    assert_string_equal(pst_op_refusal("aten.to_dense.default"), "sparse");
    assert_non_null(pst_op_refusal("prims.add.default"));
    assert_null(pst_op_refusal("aten.nothing.default"));
    assert_null(pst_op_find(""));
    assert_null(pst_op_refusal(""));
}

/* Best first: the instruction set never rises towards the end, and the last
 * kernel, the reference, is portable and exact by definition. */
static void kernels_are_in_order(void **state)
{
    (void)state;
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        const char *name = pst_op_schema(op)->name;
        const struct pst_kernels all = pst_op_kernels(&pst_device_cpu, op);
        const struct pst_kernel *last;

        if (all.n == 0)
            continue;
        last = &all.at[all.n - 1];
        if (last->isa != PST_ISA_ANY)
            fail_msg("%s: the reference %s is not portable", name, last->name);
        if (last->tolerance != 0.0)
            fail_msg("%s: the reference %s has a tolerance", name, last->name);
        if (last->supports != NULL)
            fail_msg("%s: the reference %s does not do everything", name,
                     last->name);
        for (unsigned k = 0; k < all.n; k++) {
            const struct pst_kernel *kernel = &all.at[k];

            if (kernel->run == NULL || kernel->name == NULL ||
                kernel->dtypes == 0)
                fail_msg("%s: kernel %u is not whole", name, k);
            if (kernel->dtypes & ~PST_D_ANY)
                fail_msg("%s: %s has dtypes that are none", name, kernel->name);
            /* The reference must take everything that a fast kernel takes. */
            if (kernel->dtypes & ~last->dtypes)
                fail_msg("%s: the reference lacks dtypes of %s", name,
                         kernel->name);
        }
    }
}

/* Two rows may share a kernel; two kernels may not share a name. */
static void kernel_names_are_unique(void **state)
{
    struct pst_map names;

    (void)state;
    pst_map_init(&names, PST_TAG_TEST);
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_kernels all =
            pst_op_kernels(&pst_device_cpu, pst_registry_at(i));

        for (unsigned k = 0; k < all.n; k++) {
            const struct pst_kernel *kernel = &all.at[k];
            const struct pst_kernel *other = pst_map_get(&names, kernel->name);

            if (other != NULL && other->run != kernel->run)
                fail_msg("two kernels are called %s", kernel->name);
            assert_true(pst_map_put(&names, kernel->name, (void *)kernel));
        }
    }
    pst_map_fini(&names);
}

/* A kernel chosen by name is used only if it supports the call. */
static void choice_respects_masks(void **state)
{
    const int64_t sizes[] = {3, 5};
    struct pst_meta meta = pst_meta_make(PST_F32, 2, sizes);
    const struct pst_op *op = pst_op_find("aten.add.Tensor");
    struct pst_operand in[2] = {{NULL, &meta}, {NULL, &meta}};
    struct pst_operand out[1] = {{NULL, &meta}};
    struct pst_arg args[3] = {{.kind = PST_ARG_NONE},
                              {.kind = PST_ARG_NONE},
                              {.kind = PST_ARG_INT, .i = 1}};
    struct pst_call call = {
        .in = in, .out = out, .n_in = 2, .n_out = 1, .args = args};
    const struct pst_kernel *last, *found;

    (void)state;
    assert_non_null(op);
    last = pst_op_reference(op);
    found = pst_kernel_choose(op, &call, PST_ISA_ANY, NULL);
    assert_non_null(found);
    assert_int_equal(found->isa, PST_ISA_ANY);
    assert_ptr_equal(pst_kernel_choose(op, &call, PST_ISA_ANY, last->name),
                     last);
    assert_ptr_equal(pst_kernel_choose(op, &call, PST_ISA_ANY, "none"), found);
    meta.dtype = PST_I16;
    found = pst_kernel_choose(op, &call, PST_ISA_AVX512, NULL);
    assert_non_null(found);
    assert_true(found->dtypes & PST_D(I16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(names_find_their_rows),
        cmocka_unit_test(kernels_are_in_order),
        cmocka_unit_test(kernel_names_are_unique),
        cmocka_unit_test(choice_respects_masks),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
