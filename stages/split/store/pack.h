// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_STORE_PACK_H
#define PENSTOCK_STAGES_SPLIT_STORE_PACK_H
/* plan.pb: a plan as protobuf and back (proto/plan.proto). */
#include "stages/split/plan.h"

#define PST_PLAN_FILE     "plan.pb"
#define PST_PLAN_MAX_FILE ((size_t)256 << 20)

/* The bytes of plan.pb, freed with pst_free. Fills plan->digest. What the
 * stages say of their weights files must be known. */
enum pst_status pst_plan_pack(struct pst_plan *plan, void **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* The same before layers that are alike are folded: the message that the
 * digest is of. */
enum pst_status pst_plan_body(struct pst_plan *plan, void **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* The digest alone, of a plan that is never saved. */
enum pst_status pst_plan_digest(struct pst_plan *plan,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Checks version and digest, then every field but not how they fit together
 * (pst_plan_check). Bytes are untrusted. */
enum pst_status pst_plan_unpack(const void *data, size_t size,
                                struct pst_plan **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Indices, shapes and names fit together. */
enum pst_status pst_plan_check(const struct pst_plan *plan,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The weight files have their size and hold every parameter in its shape. */
enum pst_status pst_plan_check_weights(struct pst_plan *plan,
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
