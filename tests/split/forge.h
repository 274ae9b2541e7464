// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SPLIT_FORGE_H
#define PENSTOCK_TESTS_SPLIT_FORGE_H
/* Forged plans, as an attacker who knows the format can make them: well-formed
 * and with a matching digest, but inconsistent. */
#include "tests/test.h"

#include "plan.pb-c.h"
#include "stages/split/store/pack.h"

#include <stdlib.h>

/* Unpacks a plan.pb with this body and version, and a matching digest. */
static inline enum pst_status forge_unpack(void *body, size_t size,
                                           uint32_t version,
                                           struct pst_diag *diag)
{
    Penstock__Plan__PlanFile file = PENSTOCK__PLAN__PLAN_FILE__INIT;
    struct pst_plan *plan;
    enum pst_status status;
    char digest[33];
    uint8_t *data;

    pst_digest(body, size, digest);
    file.version = version;
    file.digest = digest;
    file.body.data = body;
    file.body.len = size;
    data = malloc(penstock__plan__plan_file__get_packed_size(&file));
    assert_non_null(data);
    size = penstock__plan__plan_file__pack(&file, data);
    status = pst_plan_unpack(data, size, &plan, diag);
    if (status == PST_OK) {
        status = pst_plan_check(plan, diag);
        for (unsigned i = 0; status == PST_OK && i < plan->stages.n; i++) {
            struct pst_joint *joint;

            status = pst_joint_new(plan, i, &joint, diag);
            if (status == PST_OK)
                pst_joint_free(joint);
        }
        pst_plan_free(plan);
    }
    free(data);
    return status;
}

#endif
