// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_DTYPE_H
#define PENSTOCK_STAGES_OPS_PLUGIN_DTYPE_H
/* Dtypes of DLPack. Any thread. */
#include "include/penstock_plugin.h"
#include "stages/graph/tensor.h"

DLDataType pst_dtype_to_dl(enum pst_dtype dtype);
/* Returns false if no dtype of the graph has this code. */
bool pst_dtype_from_dl(DLDataType type, enum pst_dtype *ret);

#endif
