// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_STORE_PACK_H
#define PENSTOCK_STAGES_SPLIT_STORE_PACK_H
/* plan.pb: converts a plan to protobuf and back (proto/plan.proto). */
#include "stages/split/plan.h"

#define PST_PLAN_FILE     "plan.pb"
#define PST_PLAN_MAX_FILE ((size_t)256 << 20)

/* Packs a plan. Returns the bytes of plan.pb, to be freed with pst_free. Sets
 * plan->digest. The sizes and digests of the stages' weights files must be
 * known. */
enum pst_status pst_plan_pack(struct pst_plan *plan, void **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the packed message without folding of equal layers. plan->digest is
 * the digest of these bytes. */
enum pst_status pst_plan_body(struct pst_plan *plan, void **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Computes only plan->digest, for a plan that is not saved. */
enum pst_status pst_plan_digest(struct pst_plan *plan,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Reads a plan from the bytes of plan.pb, which are untrusted. Checks version,
 * digest and each field by itself; pst_plan_check then checks that the fields
 * are consistent. */
enum pst_status pst_plan_unpack(const void *data, size_t size,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Checks that indices, shapes and names are consistent. */
enum pst_status pst_plan_check(const struct pst_plan *plan,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Checks a plan made in memory as a reader of its file would, so that no
 * unreadable plan gets into a checkpoint. Sets plan->digest. */
enum pst_status pst_plan_check_packed(struct pst_plan *plan,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Checks that the weight files have the right size and hold every parameter in
 * its shape. */
enum pst_status pst_plan_check_weights(struct pst_plan *plan,
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
