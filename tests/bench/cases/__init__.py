# SPDX-License-Identifier: Apache-2.0
"""Makes the cases of scripts/bench-kernels.sh: a file per operator family."""
from . import (attention, elementwise, images, lookups, planes, products,
               recurrent, reductions, rows)


def all_cases():
    ret = []
    for family in (products, attention, rows, elementwise, reductions, images,
                   planes, recurrent, lookups):
        ret += family.cases()
    return ret
