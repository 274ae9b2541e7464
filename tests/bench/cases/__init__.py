# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench-kernels.sh times: a file per family of operators."""
from . import (attention, elementwise, images, lookups, planes, products,
               recurrent, reductions, rows)


def all_cases():
    ret = []
    for family in (products, attention, rows, elementwise, reductions, images,
                   planes, recurrent, lookups):
        ret += family.cases()
    return ret
