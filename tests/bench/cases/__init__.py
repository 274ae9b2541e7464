# SPDX-License-Identifier: Apache-2.0
"""The cases of scripts/bench-kernels.sh: one file per family of operators."""
from . import (attention, elementwise, images, lookups, planes, products,
               recurrent, reductions, rows)


def all_cases():
    ret = []
    for family in (products, attention, rows, elementwise, reductions, images,
                   planes, recurrent, lookups):
        ret += family.cases()
    return ret
