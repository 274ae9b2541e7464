#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that check-sizes.py finds planted faults, and only these.

usage: test_sizes.py CHECK-SIZES.py
"""
import os
import subprocess
import sys
import tempfile

HEAD = """
struct held {
    struct pst_rewrite *w;
    struct pst_extent size[3];
};
static struct pst_extent half(struct pst_rewrite *w)
{
    return pst_rw_size(w, x, 0); /* not x->meta.size[0] */
}
"""
FOLDER = "stages/ops/view"
# Name of the case: (parameters, function body, whether it is a fault).
TAKES = "static void f(struct pst_rewrite *w, struct pst_value *x)"
CASES = {
    "an extent": (TAKES, "n = pst_rw_size(w, x, 0);", False),
    "a size": (TAKES, "n = x->meta.size[0];", True),
    "a count": (TAKES, "n = pst_meta_numel(&x->meta);", True),
    "through a meta": (
        TAKES, "const struct pst_meta *m = &x->meta;\n    n = m->size[1];",
        True),
    "the value of an extent": (
        TAKES, "struct pst_extent e = half(w);\n    n = e.value;", True),
    "of a result": (TAKES, "n = half(w).value;", True),
    "of an emitter": (TAKES, "n = pst_rw_size(w, x, 0).value;", True),
    "a holder": ("static void f(const struct held *h)",
                 "n = h->size[0].value;", True),
    "a refusal's words": (
        TAKES, 'pst_rewrite_fail(w, "%d",\n        x->meta.size[0]);', False),
    "inference": ("static void f(struct pst_infer *c)",
                  "n = x->meta.size[0];", False),
    "a gradient": ("static void f(struct pst_vjp *v)", "n = x->meta.size[0];",
                   False),
}


def check(script, text, excuses):
    with tempfile.TemporaryDirectory(prefix="pst-") as root:
        os.makedirs(os.path.join(root, FOLDER))
        os.makedirs(os.path.join(root, "scripts/checks"))
        with open(os.path.join(root, FOLDER, "a.c"), "w",
                  encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(root, "scripts/checks/sizes-allowed.txt"), "w",
                  encoding="utf-8") as file:
            file.write(excuses)
        done = subprocess.run([sys.executable, script, root], text=True,
                              capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    script = sys.argv[1]
    excuse = f"{FOLDER}/a.c f: a reason\n"
    wrong = []
    for name, (head, body, fault) in CASES.items():
        text = f"{HEAD}\n{head}\n{{\n    {body}\n}}\n"
        code, said = check(script, text, "")
        if code != fault or fault != ("f reads a size as a number" in said):
            wrong.append(f"{name}: {code}, {said}")
        code, said = check(script, text, excuse)
        if code == fault or (not fault) != ("nothing needs" in said):
            wrong.append(f"{name}, excused: {code}, {said}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
