// SPDX-License-Identifier: Apache-2.0
#include "stages/run/watch/pace.h"

#include "stages/base/macros.h"

#define FEWEST 16   /* steps before there is a limit */
#define TIMES  10   /* limit, in multiples of the longest of the newest steps */
#define LEAST  30.0 /* seconds: a link may be down for that long */

double pst_pace_add(struct pst_pace *pace, double seconds)
{
    double longest = 0;

    pace->seconds[pace->n % PST_PACE_STEPS] = seconds;
    pace->n++;
    if (pace->n < FEWEST)
        return 0;
    for (unsigned i = 0; i < PST_MIN(pace->n, (unsigned)PST_PACE_STEPS); i++)
        longest = PST_MAX(longest, pace->seconds[i]);
    return PST_MAX(LEAST, TIMES * longest);
}
