#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the calls of modules, and which of them are equal, with expected
results.

usage: calls.py PENSTOCK FOLDER GOLDEN

FOLDER/expected.json lists the calls of each FOLDER/*.pt2 in order of entry.
Equal numbers of `identity` mean the same module, of `template` the same
graph.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

WORD = r'("(?:[^"\\]|\\.)*"|[^\s@]+)'
CALL = re.compile(rf"  call {WORD}(?:@(\d+))? in {WORD}(?:@(\d+))?"
                  rf"(?: type {WORD})?(?: key (\S+))?$")
# The expected signature of a call: nested arguments, one of which is unused.
NESTED = ('  signature nested in "0.0" %z in "0.1" %x in "y.key" %y '
          'out "x" %add out "w" %mul')


def unquoted(word):
    return json.loads(word) if word.startswith('"') else word


def numbered(names):
    """Returns numbers for names, by first appearance: equal names have equal
    numbers."""
    seen = {}
    return [seen.setdefault(name, len(seen)) for name in names]


def calls_of(text):
    found = []
    for line in text.splitlines():
        if not line.startswith("  call ") or line.startswith("  call - "):
            continue
        m = CALL.match(line)
        assert m, line
        found.append((unquoted(m[1]), int(m[2] or 0), m[6], unquoted(m[3])))
    return found


def check(penstock, folder, name, want):
    text = subprocess.run([penstock, "show", os.path.join(folder, name)],
                          check=True, capture_output=True, text=True).stdout
    calls = calls_of(text)
    listed = [(c["path"], c["index"]) for c in want["calls"]]
    assert [c[:2] for c in calls] == listed, (calls, listed)
    keys = numbered(c[2] for c in calls)
    assert keys == numbered(c["identity"] for c in want["calls"]), keys
    for path, _, _, outer in calls:
        assert outer == "-" or path.startswith(outer + "."), (path, outer)
    signed = [line for line in text.splitlines()
              if line.startswith("  signature ")]
    kept = set(want["preserve"] or ())
    assert len(signed) >= sum(p in kept for p, _ in listed), signed
    modules = json.loads(subprocess.run(
        [penstock, "modules", os.path.join(folder, name), "--calls", "--json"],
        check=True, capture_output=True, text=True).stdout)
    assert modules == {k: want[k] for k in modules}, (modules, want)
    assert set(modules) == {"calls", "names", "templates"}, modules
    check_show(penstock, os.path.join(folder, name), want, modules)
    if name == "u18-preserved.pt2":
        assert signed == [NESTED], signed


def run(*args, code=0):
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == code, (args, done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def check_show(penstock, file, want, modules):
    """Checks that `show` gives the same calls for each call alone, as a tree,
    and for a plan."""
    with tempfile.TemporaryDirectory(prefix="pst-") as work:
        plan = os.path.join(work, "plan")
        run(penstock, "split", file, "-o", plan, "--policy", "flops",
            "--stages", "1" if re.search("u07|u11b", file) else "2")
        have = json.loads(run(penstock, "modules", plan, "--calls", "--json"))
        assert have == modules, (have, modules)
        of_plan = tree(penstock, plan)
        of_model = tree(penstock, file)
        assert sum(len(m.pop("stages")) for m in of_model) == 0
        stages = {k for m in of_plan for k in m.pop("stages")}
        assert of_plan == of_model, (of_plan, of_model)
        assert not want["calls"] or stages <= {0, 1}
        graphs = {}
        for call in want["calls"][:12]:
            name = f"{call['path']}@{call['index']}"
            text = run(penstock, "show", file, "--module", name)
            assert call["path"] in text.split(",")[0], text
            graphs.setdefault(call["template"], set()).add(
                tuple(shape_of(text)))
            run(penstock, "show", plan, "--module", name)
        assert all(len(g) == 1 for g in graphs.values()), graphs


def shape_of(text):
    """Returns the operators and calls of a text in order, without names."""
    return [re.sub(r"^.* = |\(.*", "", line.strip())
            if " = " in line else line.split()[0]
            for line in text.splitlines()[1:]]


def tree(penstock, file):
    modules = json.loads(run(penstock, "modules", file, "--json"))
    return [m for m in modules["modules"]]


def refusals(penstock, folder):
    file = os.path.join(folder, "u04.pt2")
    for name, words in (("oter", 'the nearest name is "outer"'),
                        ("outer@2", "has 2 calls, and none of them is "),
                        ("outer@x", '"x" is not a number of a call of module '
                                    '"outer"'),
                        ("outer.iner@1", 'nearest name is "outer.inner"')):
        said = run(penstock, "show", file, "--module", name, code=65)
        assert words in said, said
    said = run(penstock, "show", file, "--module", "outer", "--format", "svg",
               code=64)
    assert "--format svg is for whole plans" in said, said
    text = run(penstock, "show", os.path.join(folder, "u11.pt2"), "--module",
               "a.d@1")
    assert text.startswith("call a.d@1, "), text
    done = subprocess.run(
        [penstock, "show", os.path.join(folder, "u11.pt2")],
        capture_output=True, text=True, check=True)
    assert 'module "b.c" calls "a.d", which does not stand below it' in \
        done.stderr, done.stderr
    rows = {m["path"]: m for m in tree(penstock,
                                       os.path.join(folder, "u12.pt2"))}
    assert rows["norms"]["parameters"] == 8, rows["norms"]
    assert rows["norms"]["own_parameters"] == rows["norms"]["calls"] == 0
    assert rows["norms.1"]["parameters"] == 8, rows["norms.1"]
    assert rows["norms.1"]["own_parameters"] == 8, rows["norms.1"]


def cuts(penstock, folder):
    """Checks that --at accepts the names that --calls prints."""
    with tempfile.TemporaryDirectory(prefix="pst-") as work:
        def operators(model, at, code=0):
            said = run(penstock, "split", os.path.join(folder, model), "-o",
                       os.path.join(work, "plan"), "--json", "--at", at,
                       code=code)
            if code != 0:
                return said
            return [s["operators"] for s in json.loads(said)["stages"]]

        assert operators("u03.pt2", "n") == [1, 2, 2, 2]
        assert operators("u03.pt2", "n@0") == [1, 6]
        assert operators("u03.pt2", "n@1") == [3, 4]
        assert operators("u03.pt2", "n@1:end") == [4, 3]
        assert operators("u03.pt2", "n@2:end") == [6, 1]
        # k.n is called before k, so its operators are not a part of the call
        # of k.
        assert operators("u10.pt2", "k") == [3, 4]
        assert operators("u10.pt2", "k.n@1") == [4, 3]
        said = operators("u03.pt2", "n@3", code=65)
        assert "has 3 calls, and none of them has that number" in said, said
        said = operators("u03.pt2", "n@01", code=65)
        assert "no module and no node of that name" in said, said
        # With these costs most of the work is in two calls, each of which gets
        # its own stage.
        costs = os.path.join(work, "costs.json")
        for pair, want in ((("n@0", "n@1"), (2, 3)), (("n@1", "n@2"), (4, 5))):
            with open(costs, "w", encoding="utf-8") as f:
                json.dump({"format": "penstock-costs", "version": 1,
                           "stages": [{"forward": 1, "backward": 2}],
                           "modules": [
                               {"module": m, "forward": s, "input": 0,
                                "weight": 0}
                               for m, s in (("", 1e-9), ("n", 1e-9),
                                            *((n, 1.0) for n in pair))]}, f)
            said = run(penstock, "split", os.path.join(folder, "u03.pt2"),
                       "-o", os.path.join(work, "plan"), "--json", "--costs",
                       costs, "--stages", "2", "--policy", "flops")
            have = [s["operators"] for s in json.loads(said)["stages"]]
            assert have[0] in want, (pair, have)


def sizes(penstock, folder):
    """Checks that the plan.pb of 32 equal blocks has at most 1.3 times the
    size of the plan.pb of one block."""
    with tempfile.TemporaryDirectory() as work:
        size = {}
        for name in "u17-one", "u17":
            run(penstock, "split", os.path.join(folder, f"{name}.pt2"), "-o",
                os.path.join(work, name), "--policy", "flops", "--stages", "1")
            size[name] = os.path.getsize(os.path.join(work, name, "plan.pb"))
        assert size["u17"] <= 1.3 * size["u17-one"], size


def pictures(penstock, folder):
    """Checks that pictures show the calls in each stage."""
    file = os.path.join(folder, "u17.pt2")
    dot = run(penstock, "show", file, "--stages", "2", "--format", "dot")
    assert '[label="layers.0\\n' in dot, dot
    assert "subgraph cluster_1 {" in dot and "layers.20" in dot, dot
    dot = run(penstock, "show", os.path.join(folder, "u03.pt2"), "--format",
              "dot", "--at", "n@1")
    assert 'label="n@2\\n1 operator,' in dot, dot
    svg = run(penstock, "show", os.path.join(folder, "u03.pt2"), "--format",
              "svg", "--at", "n@1")
    texts = ["".join(t.itertext()) for t in
             ElementTree.fromstring(svg).iter(
                 "{http://www.w3.org/2000/svg}text")]
    assert "n@1, 1 FLOP" in texts and "n@2, 1 FLOP" in texts, texts


def goldens(penstock, golden):
    """Tests operators without a stack, a constant with two names, and calls
    without operators: models of tests/golden/make/frontend/make_regions.py."""
    for name in "regions", "empty":
        file = os.path.join(golden, f"{name}.pt2")
        modules = json.loads(run(penstock, "modules", file, "--calls",
                                 "--json"))
        names = [(c["path"], c["index"], c["name"]) for c in modules["calls"]]
        assert names == [
            ("part", 0, "part"), ("part.c", 0, "part.c"),
            ("part", 1, "part"), ("part.c", 1, "part.c"),
            ("parts.1", 0, "parts.1"), ("parts.1.c", 0, "parts.1.c")], names
        assert modules["templates"] == 2, modules
        for call in "part", "part@1", "parts.1":
            text = run(penstock, "show", file, "--module", call)
            assert "aten.tanh" in text, text


def main():
    penstock, folder, golden = sys.argv[1:4]
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    failed = 0
    for name, want in sorted(expected.items()):
        try:
            check(penstock, folder, name, want)
        except (AssertionError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{name}: {getattr(error, 'stderr', '') or error}")
    refusals(penstock, folder)
    goldens(penstock, golden)
    cuts(penstock, folder)
    sizes(penstock, folder)
    pictures(penstock, folder)
    assert len(expected) > 70
    print(f"{len(expected) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
