// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/options/every.h"

#include <inttypes.h>
#include <string.h>

#include "stages/base/str.h"

#define MAX_STEPS  (INT64_C(1) << 53)
#define MIN_EPOCHS 1e-9
#define MAX_EPOCHS 1e9

enum pst_status pstd_every_parse(const char *who, const char *text,
                                 struct pstd_every *ret, struct pst_diag *diag)
{
    const size_t n = strcspn(text, "p"); /* "0.5e" of "0.5epochs" */
    char number[32];
    int64_t steps;
    double epochs;

    if (pst_parse_i64(text, &steps) && steps >= 0 && steps <= MAX_STEPS) {
        *ret = (struct pstd_every){.steps = (uint64_t)steps};
        return PST_OK;
    }
    if (n > 1 && n < sizeof(number) && text[n - 1] == 'e' &&
        (strcmp(text + n, "poch") == 0 || strcmp(text + n, "pochs") == 0)) {
        memcpy(number, text, n - 1);
        number[n - 1] = '\0';
        if (pst_parse_f64(number, &epochs) && epochs >= MIN_EPOCHS &&
            epochs <= MAX_EPOCHS) {
            *ret = (struct pstd_every){.epochs = epochs};
            return PST_OK;
        }
    }
    return pst_diag_set(diag, PST_E_OPTION_VALUE,
                        "%s: \"%.80s\" is neither a whole number of steps nor "
                        "passes over the data, as 1epoch or 0.5epochs",
                        who, text);
}

void pstd_every_print(const struct pstd_every *every, struct pst_str *out)
{
    char number[32];

    if (every->epochs > 0) {
        pst_format_f64(every->epochs, number);
        pst_str_addf(out, "%sepochs", number);
    } else {
        pst_str_addf(out, "%" PRIu64, every->steps);
    }
}
