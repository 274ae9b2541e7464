#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every line of a log can be parsed by its grammar, whatever texts
the line contains.

usage: grammar.py WRITE-LOGS LINES [SEED]
"""
import subprocess
import sys
import tempfile
import zlib

import logs


def main():
    writer, lines = sys.argv[1], int(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    print(f"seed {seed}")
    seen, cut, texts = set(), 0, 0
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        subprocess.run([writer, folder, str(lines), seed], check=True)
        for head, fields in logs.read(folder):
            assert (head["rank"], head["seq"]) not in seen, head
            seen.add((head["rank"], head["seq"]))
            assert head["job"] == 'a "job"', head
            said = [fields[k] for k in ("text", "dir", "name", "path")
                    if k in fields]
            texts += len(said)
            if "cut" in fields:
                cut += 1
                continue
            whole = "".join(said).encode()
            # A note holds up to 2560 bytes of text.
            if len(whole) < 2000:
                assert int(fields["crc"]) == zlib.crc32(whole), fields
            assert float(fields["loss"]) is not None
    assert len(seen) == lines // 8 * 8 and texts > lines
    print(f"{len(seen)} lines of 8 ranks, {texts} texts, {cut} lines cut")


if __name__ == "__main__":
    main()
