// SPDX-License-Identifier: Apache-2.0
/* Complex tensors filled with one number. zeros and similar operators have no
 * complex variant: the importer (stages/frontend/import/pairs/movers.c) emits
 * the real operator and adds the dimension of the two parts to `size`. */
#include "stages/ops/complex/rows.h"

#define OPTIONS                                                                \
    "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "    \
    "bool? pin_memory=None"
#define FORMAT ", MemoryFormat? memory_format=None"

COMPLEX(empty_permuted,
        "empty_permuted(SymInt[] size, int[] physical_layout, " OPTIONS
        ") -> Tensor",
        "stack([zeros(size, dtype=dtype), zeros(size, dtype=dtype)], -1)");
COMPLEX(ones, "ones(SymInt[] size, " OPTIONS ") -> Tensor",
        "stack([ones(size, dtype=dtype), zeros(size, dtype=dtype)], -1)");
COMPLEX(ones_like, "ones_like(Tensor self, " OPTIONS FORMAT ") -> Tensor",
        "a = select.int(self, -1, 0);"
        "stack([ones_like(a, dtype=dtype), zeros_like(a, dtype=dtype)], -1)");
COMPLEX(new_ones, "new_ones(Tensor self, SymInt[] size, " OPTIONS ") -> Tensor",
        "stack([new_ones(self, size, dtype=dtype), "
        "new_zeros(self, size, dtype=dtype)], -1)");

/* The result is not a view, since later nodes may write to it. */
#define FILL(size) "contiguous(expand(cast(fill_value, dtype), " size "))"
COMPLEX(full, "full(SymInt[] size, Tensor fill_value, " OPTIONS ") -> Tensor",
        FILL("size"));
COMPLEX(full_like,
        "full_like(Tensor self, Tensor fill_value, " OPTIONS FORMAT
        ") -> Tensor",
        FILL("sizes(self)"));
COMPLEX(new_full,
        "new_full(Tensor self, SymInt[] size, Tensor fill_value, " OPTIONS
        ") -> Tensor",
        FILL("size"));
COMPLEX(scalar_tensor, "scalar_tensor(Tensor s, " OPTIONS ") -> Tensor",
        "cast(s, dtype)");
COMPLEX(fill_Scalar, "fill.Scalar(Tensor self, Tensor value) -> Tensor",
        "contiguous(expand(cast(value, dtype(self)), sizes(self)))");
COMPLEX(fill_Tensor, "fill.Tensor(Tensor self, Tensor value) -> Tensor",
        "contiguous(expand(cast(value, dtype(self)), sizes(self)))");
