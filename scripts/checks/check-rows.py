#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each defined row is listed in its table and is documented.

usage: check-rows.py LIBRARY ROOT

A row of an operator, of its kernels or of an optimizer that its table does not
list compiles without a warning, but is never found. LIBRARY is
build/stages/libstages.a: its symbols are read with nm, so that rows defined by
macros are included. Operators with kernels must be listed by PST_OP. Names
that users see (schedules, optimizers and their states, commands) must be in
their documents. Prints one line per fault; exit code 1 if there is any.
"""
import glob
import os
import re
import subprocess
import sys

# Prefix of the symbols; table; macros that may list a symbol in the table.
TABLES = [("pst_op_", "stages/ops/core/ops.def", ["PST_OP", "PST_OP_NO_KERNEL"]),
          ("pst_cpu_kernels_", "stages/ops/core/ops.def", ["PST_OP"]),
          ("pst_optim_", "stages/optim/optims.def", ["PST_OPTIM"])]
# Tables; pattern of the names in them; documents that must contain each name;
# pattern of a name in a document; names that are exempt.
WORD = r"(?<![\w-]){}(?![\w-])"
NAMES = [("stages/sched/scheds.def", r'PST_SCHED\(\w+, "([\w-]+)"',
          ["docs/schedules.md"], WORD, {"inference"}),
         ("stages/optim/optims.def", r"^PST_OPTIM\((\w+)\)",
          ["docs/commands.md", "daemon/common/options/options.c"], WORD, set()),
         ("stages/optim/*.c", r'"((?!update\.)\w+\.\w+)"',  # optimizer states
          ["docs/files.md"], WORD, set()),
         ("daemon/ctl/commands.def", r'^PSTCTL_COMMAND\(\w+, "(\w+)"',
          ["docs/commands.md"], r"^\| (?:`[^`]*`, )*`{}[ `]", set())]


def main():
    library, root = sys.argv[1:]

    def text(path):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()

    symbols = subprocess.run(["nm", library], check=True, text=True,
                             capture_output=True).stdout
    data = re.findall(r" [DR] (pst_\w+)$", symbols, re.M)
    faults = []
    for prefix, path, macros in TABLES:
        listed = set(re.findall(rf"^(?:{'|'.join(macros)})\((\w+)\)",
                                text(path), re.M))
        made = {s[len(prefix):] for s in data if s.startswith(prefix)}
        if not made:
            faults.append(f"{library} has no row {prefix}*: is it the library?")
        faults += [f"row {prefix}{name} is not in {path}: "
                   f"{' or '.join(f'{m}({name})' for m in macros)} is missing"
                   for name in sorted(made - listed)]
    for path, pattern, documents, mention, hidden in NAMES:
        found = [name for file in sorted(glob.glob(path, root_dir=root))
                 for name in re.findall(pattern, text(file), re.M)
                 if name not in hidden]
        if not found:
            faults.append(f"{path} has no name: is the pattern right?")
        faults += [f"{document} does not name {name}, a row of {path}"
                   for name in found for document in documents
                   if not re.search(mention.format(re.escape(name)),
                                    text(document), re.M)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
