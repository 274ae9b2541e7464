#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the directions of includes, and the form of headers.

Folders include each other in one direction only (LAYERS), and so do units; a
unit is NAME.h with NAME.c. So a unit can be understood from itself and the
units that it includes. The include guard of a header is its path, each header
compiles alone, and only the listed files may include some headers (OWNERS,
INSIDES).

usage: check-layers.py [--cc COMMAND] [-I DIR]... [-D NAME]... [ROOT]

Without --cc the headers are not compiled. Prints one line per fault; exit code
1 if there is any.
"""
import argparse
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

# LAYERS: the folders that each folder may include besides itself
# (ARCHITECTURE.md, "Folders").
BASE = ["stages/base"]
GRAPH = BASE + ["stages/graph"]
DEVICE = GRAPH + ["stages/device"]
OPS = DEVICE + ["stages/ops"]
PLAN = OPS + ["stages/files", "stages/passes", "stages/frontend",
              "stages/cost", "stages/split"]
LAYERS = {
    "stages/base": [],
    "stages/graph": BASE,
    "stages/device": GRAPH,
    "stages/ops": DEVICE + ["include"],
    "stages/files": OPS,
    "stages/passes": OPS,
    "stages/frontend": OPS + ["stages/files", "stages/passes"],
    "stages/modules": OPS + ["stages/files", "stages/passes",
                       "stages/frontend"],
    "stages/cost": OPS,
    "stages/split": PLAN,
    "stages/sched": BASE,
    "stages/net": BASE,
    "stages/optim": OPS,
    "stages/compile": PLAN,
}
LAYERS["stages/layout"] = PLAN + ["stages/sched", "stages/net",
                                  "stages/optim", "stages/compile"]
LAYERS["stages/tune"] = LAYERS["stages/layout"] + ["stages/layout"]
RUN = list(LAYERS)
LAYERS["stages/run"] = RUN
LAYERS["stages/verify"] = RUN + ["stages/run"]
LAYERS["stages/alias"] = RUN + ["stages/run"]
LAYERS["daemon/common"] = list(LAYERS)
LAYERS["daemon"] = list(LAYERS)
LAYERS["include"] = []
LAYERS["lib"] = LAYERS["daemon"] + ["include"]
LAYERS["examples"] = ["include"]
LAYERS["tests"] = LAYERS["daemon"] + ["daemon", "include", "lib"]

# Headers of libraries, of the build and of one folder, and the only folders
# that may include them.
OWNERS = {
    "mpi.h": ["stages/net", "tests"],
    "cblas.h": ["stages/ops"],
    "lapack.h": ["stages/ops"],
    "dnnl.h": ["stages/ops"],
    "uv.h": ["daemon/common", "daemon", "tests"],
    "zip.h": ["stages/files", "tests"],
    "xxhash.h": ["stages/base"],
    "jansson.h": ["stages/files", "stages/sched", "stages/split",
                  "daemon/common", "daemon", "tests"],
    "stages/files/pt2/json.h": ["stages/files", "stages/alias", "tests"],
    "stages/files/pt2/reader.h": ["stages/files", "tests"],
    "plan.pb-c.h": ["stages/split", "tests"],
    "control.pb-c.h": ["daemon/common", "daemon", "tests"],
    "tensorboard.pb-c.h": ["daemon"],
    "cmocka.h": ["tests"],
    "dlpack/dlpack.h": ["include"],
}

# Headers that expose internals, the only files that may include them, and the
# reason for each.
INSIDES = {
    "stages/run/rank/whole.h": {
        "stages/run/rank/rank.c": "makes all parts of a rank",
        "stages/run/rank/run.c": "drives them in a step",
        "stages/run/rank/conclude.c": "ends the step of all of them",
        "stages/run/rank/describe.c": "any of them may be what stands still",
        "stages/run/rank/probe.c": "it observes whatever an action does",
        "tests/device/test_shadow.c": "plants a lie into one",
    },
    "stages/ops/core/order.h": {
        "stages/ops/core/registry.c": "finds a row's place in a device's table",
        "stages/ops/cpu/kernels.c": "is the table of cpu",
        "stages/ops/cuda/kernels.c": "is the table of cuda",
        "tests/compile/test_passes.c": "has a table with another kernel",
        "tests/device/test_sparse.c": "has a table with holes",
    },
}

# Headers of earlier versions, as they were.
FROZEN = "tests/lib/versions/0"

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]')


def folder_of(path):
    """Returns the folder of LAYERS that contains a path, or None. The path is
    relative to the root."""
    parts = path.split("/")
    for n in (2, 1):
        name = "/".join(parts[:n])
        if len(parts) > n and name in LAYERS:
            return name
    return None


def sources(root):
    for top in sorted({name.split("/")[0] for name in LAYERS}):
        for where, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            if os.path.relpath(where, root).startswith(FROZEN):
                continue
            for name in sorted(files):
                if name.endswith((".c", ".h", ".def")):
                    full = os.path.join(where, name)
                    yield os.path.relpath(full, root).replace(os.sep, "/")


def check_include(path, target, system):
    """Returns a description of the fault; None if the include is fine."""
    layer = folder_of(path)
    if target in INSIDES and path not in INSIDES[target]:
        return f"only {', '.join(INSIDES[target])} may include {target}"
    owners = OWNERS.get(target)
    if owners is not None:
        if layer not in owners:
            return f"only {', '.join(owners)} may include {target}"
        return None
    if system:
        return None
    other = folder_of(target)
    if other is None:
        return f'"{target}" is no path from the root'
    if other != layer and other not in LAYERS[layer]:
        return f"{layer} may not include {other} ({target})"
    return None


def check_order(path, includes):
    """Checks that a source includes its own header before all others."""
    own = path[:-2] + ".h"
    if path.endswith(".c") and own in includes and includes[0] != own:
        return f"{own} does not come first"
    return None


def check_guard(path, text):
    guard = "PENSTOCK_" + re.sub(r"[^A-Z0-9]", "_", path.upper())
    lines = [line for line in text.splitlines() if line.startswith("#")]
    if lines[:2] != [f"#ifndef {guard}", f"#define {guard}"]:
        return f"the guard is not {guard}"
    return None


def check_file(root, path):
    faults = []
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    includes = []
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        includes.append(found.group(2))
        fault = check_include(path, found.group(2), found.group(1) == "<")
        if fault:
            faults.append(f"{path}:{number}: {fault}")
    fault = check_order(path, includes)
    if fault:
        faults.append(f"{path}: {fault}")
    if path.endswith(".h"):
        fault = check_guard(path, text)
        if fault:
            faults.append(f"{path}: {fault}")
    return faults


def includes_of(root, path):
    """Returns the files that a file includes; none if it does not exist."""
    if not os.path.exists(os.path.join(root, path)):
        return set()
    with open(os.path.join(root, path), encoding="utf-8") as file:
        found = [INCLUDE.match(line) for line in file]
    return {x.group(2) for x in found if x}


def check_insides(root, paths):
    """Checks that the files listed in INSIDES do include the headers."""
    return [f"{path} does not include {target}: the list need not name it"
            for target, files in INSIDES.items() if target in paths
            for path in files if target not in includes_of(root, path)]


def units(root, paths):
    """Maps each unit to the units that it includes."""
    ours = {path[:-2] for path in paths if path.endswith((".c", ".h"))}
    edges = {unit: set() for unit in ours}
    for path in paths:
        if not path.endswith((".c", ".h")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for line in file:
                found = INCLUDE.match(line)
                if found and found.group(2)[:-2] in ours:
                    edges[path[:-2]].add(found.group(2)[:-2])
        edges[path[:-2]].discard(path[:-2])
    return edges


def find_circles(edges):
    """Returns the strongly connected components of more than one unit (Tarjan
    1972)."""
    index, low, stack, circles = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in edges[unit]:
            if other not in index:
                visit(other)
            if other in stack:
                low[unit] = min(low[unit], low[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                circles.append(sorted(stack[at:]))
            del stack[at:]

    for unit in sorted(edges):
        if unit not in index:
            visit(unit)
    return circles


def stands_first(root, path):
    """True if the build compiles the header alone: NAME.c includes NAME.h before
    anything else."""
    try:
        with open(os.path.join(root, path[:-1] + "c"), encoding="utf-8") as file:
            first = re.search(r"^ *# *include +(.*)", file.read(), re.M)
    except FileNotFoundError:
        return False
    return first is not None and first.group(1).strip() == f'"{path}"'


def compile_header(cc, root, path):
    """Returns the messages of the compiler if the header does not compile
    alone."""
    # Device code is C++.
    language = "c++" if path.startswith("tests/cuda/") else "c"
    done = subprocess.run(
        cc + ["-x", language, "-fsyntax-only", "-"],
        input=f'#include "{path}"\n',
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    if done.returncode == 0:
        return []
    first = next((x for x in done.stderr.splitlines() if "error" in x), "")
    return [f"{path}: does not compile alone: {first}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", help="compiler with its options")
    parser.add_argument("-I", action="append", default=[], metavar="DIR")
    parser.add_argument("-D", action="append", default=[], metavar="NAME")
    parser.add_argument("root", nargs="?", default=".")
    args = parser.parse_args()

    paths = list(sources(args.root))
    if not paths:
        sys.exit(f"no sources below {args.root}")
    faults = [fault for path in paths for fault in check_file(args.root, path)]
    faults += check_insides(args.root, paths)
    faults += ["a circle of files: " + ", ".join(circle)
               for circle in find_circles(units(args.root, paths))]
    if args.cc:
        cc = shlex.split(args.cc) + ["-std=c17", "-D_GNU_SOURCE", "-I."]
        cc += [f"-I{os.path.abspath(x)}" for x in args.I]
        cc += [f"-D{x}" for x in args.D]
        headers = [path for path in paths
                   if path.endswith(".h") and not stands_first(args.root, path)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for found in pool.map(
                lambda path: compile_header(cc, args.root, path), headers
            ):
                faults += found
    for fault in faults:
        print(fault)
    print(f"{len(paths)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
