#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lines of edges.py whose tensors are large: too large to be kept in
tests/data.

usage: large.py OUTDIR [--only TEXT]    only lines that contain TEXT
"""
import edges

if __name__ == "__main__":
    edges.main(large=True)
