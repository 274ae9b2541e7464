#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles device code and keeps what the assembler reports: registers, shared
# memory and spills of each kernel. tests/cuda/registers.py reads it.
#
#   nvcc.sh REPORT NVCC [arguments]
set -euo pipefail
report=$1
shift
code=0
"$@" -Xptxas -v 2>"$report" || code=$?
# All else, errors and warnings, is for the reader of the build.
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame|^ *$' "$report" >&2 || true
exit "$code"
