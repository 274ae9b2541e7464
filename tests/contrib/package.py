#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the installed files, and those for administrators: systemd unit,
logrotate, lnav.

usage: package.py ROOT BUILD|FILE.deb [PENSTOCK]

BUILD is a build folder: then the files that `meson install` would install are
tested; those of the library are missing in builds with sanitizers. FILE.deb is
one of the three packages. systemd-analyze and lnav are used if they are installed; otherwise a
message says so.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

THRESHOLD = 20  # highest score of systemd-analyze security, in tenths


def ask(*words, **options):
    done = subprocess.run(words, text=True, check=False, timeout=PATIENCE,
                          capture_output=True, **options)
    assert done.returncode == 0, (words, done)
    return done.stdout


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def installed(what):
    """Returns the paths of the installed files, from /usr on, without .gz."""
    if os.path.isdir(what):
        found = json.loads(ask("meson", "introspect", "--installed", what))
        return {re.sub("^/usr/local/", "/usr/", x) for x in found.values()}
    lines = ask("dpkg-deb", "-c", what).splitlines()
    names = [line.split(" -> ")[0].split()[-1][1:] for line in lines]
    return {re.sub(r"\.gz$", "", x) for x in names if not x.endswith("/")}


LIBRARY = "/usr/lib/x86_64-linux-gnu"


def library_of(package):
    """Returns the files of a package of the library."""
    doc = f"/usr/share/doc/{package}"
    return {f"{doc}/copyright", f"{doc}/changelog"} | (
        {f"{LIBRARY}/libpenstock.so.0", f"{LIBRARY}/libpenstock.so.0.1.0"}
        if package == "libpenstock0" else
        {"/usr/include/penstock.h", "/usr/include/penstock_plugin.h",
         "/usr/include/penstock.f90",
         "/usr/share/penstock/penstock.py",
         f"{LIBRARY}/libpenstock.so",
         f"{LIBRARY}/pkgconfig/penstock.pc"})


def shares(build):
    """True if the build has the library: its code may be at any address."""
    options = {one["name"]: one["value"] for one in json.loads(ask(
        "meson", "introspect", "--buildoptions", build))}
    return options["b_staticpic"] and options["b_sanitize"] == "none"


def all_is_installed(root, files, commands, package, has_library):
    is_package = package is not None
    want = {"/usr/bin/penstock", "/usr/bin/penstockd",
            "/usr/share/man/man1/penstock.1",
            "/usr/share/man/man1/penstockd.1",
            "/usr/share/bash-completion/completions/penstock.bash"}
    want |= {f"/usr/share/man/man1/penstock-{x}.1" for x in commands}
    if is_package and package != "penstock":
        want = library_of(package)
    elif is_package:
        doc = "/usr/share/doc/penstock"
        want |= {"/lib/systemd/system/penstock@.service",
                 "/etc/logrotate.d/penstock", f"{doc}/copyright",
                 f"{doc}/changelog", f"{doc}/README.md",
                 f"{doc}/control.proto"}
        want |= {f"{doc}/examples/{x}" for x in
                 os.listdir(f"{root}/contrib")}
        want |= {f"{doc}/{os.path.basename(x)}"
                 for x in glob.glob(f"{root}/docs/*.md")}
    elif has_library:
        want |= {x for name in ("libpenstock0", "libpenstock-dev")
                 for x in library_of(name) if "/doc/" not in x}
    missing, more = want - files, files - want
    assert not missing, missing
    assert not more, more


def commands_of(root):
    """Returns the commands that have manual pages."""
    return re.findall(r'^PSTCTL_COMMAND\(\w+, "(\w+)"',
                      read(root, "daemon/ctl/commands.def"), re.M)


def unit_is_closed(root):
    """Checks that the unit uses existing options and is as restricted as its
    comments state."""
    unit = f"{root}/contrib/penstock@.service"
    text = read(unit)
    options = set(re.findall(r'"([a-z][a-z-]+)"',
                             read(root, "daemon/common/options/options.c")))
    used = re.findall(r"PENSTOCK_(\w+)=", text.replace("PENSTOCK_NAME=", ""))
    assert len(used) >= 4
    for name in used:
        assert name.lower().replace("_", "-") in options, name
    lines = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    # Address families that ranks and launcher need.
    assert {"AF_UNIX", "AF_INET", "AF_NETLINK"} <= set(
        lines["RestrictAddressFamilies"].split())
    assert lines["SystemCallFilter"] == "@system-service"
    assert "MemoryDenyWriteExecute" not in lines and "ProcSubset" not in lines
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not installed: the unit was only read")
        return
    said = ask("systemd-analyze", "security", "--offline=true",
               f"--threshold={THRESHOLD}", unit)
    print(said.strip().splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        bare = f"{folder}/bare.service"
        with open(bare, "w", encoding="utf-8") as file:
            file.write("[Service]\nExecStart=/bin/true\n")
        done = subprocess.run(["systemd-analyze", "security", "--offline=true",
                               f"--threshold={THRESHOLD}", bare], check=False,
                              capture_output=True)
        assert done.returncode != 0, "a bare unit passes, too"


def lnav_reads(root):
    """Checks the tables that contrib/penstock.lnav.sql makes from a log."""
    if not shutil.which("lnav"):
        print("lnav is not installed: its tables were not tried")
        return
    lines = read(root, "tests/contrib/night.log").splitlines()
    want = [sum(f" level={x} " in line for line in lines)
            for x in ("info", "warn", "error")]
    steps = [x for x in lines if " event=step " in x]
    want += [len(steps), re.search(r" loss=(\S+)", steps[0])[1]]
    assert min(want[:4]) > 1 and sum(want[:3]) == len(lines)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        env = dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder,
                   TERM="dumb")
        os.makedirs(f"{folder}/lnav/formats/penstock")
        shutil.copy(f"{root}/contrib/penstock.lnav.sql",
                    f"{folder}/lnav/formats/penstock/")
        ask("lnav", "-C", env=env)
        said = ask(
            "lnav", "-n", "-c", ";SELECT sum(level = 'info'), "
            "sum(level = 'warn'), sum(level = 'error'), "
            "(SELECT count(*) FROM penstock_steps), "
            "(SELECT loss FROM penstock_steps LIMIT 1) FROM penstock_events",
            "-c", ":write-csv-to -", f"{root}/tests/contrib/night.log",
            env=env)
    assert ",".join(map(str, want)) in said.splitlines(), (want, said)


def sources_are_there(root):
    for name in os.listdir(f"{root}/debian"):
        assert os.path.exists(f"{root}/debian/{name}"), f"debian/{name}"
    for name in ("penstock", "libpenstock0", "libpenstock-dev"):
        assert read(root, f"debian/{name}.install").strip(), name
        assert f"\nPackage: {name}\n" in read(root, "debian/control"), name
    for name in "docs", "examples":
        for line in read(root, f"debian/penstock.{name}").split():
            assert glob.glob(f"{root}/{line}"), line
    needed = re.search(r"Build-Depends:(.*?)\nStandards", read(
        root, "debian/control"), re.DOTALL)[1]
    listed = set(re.findall(r"[\w.+-]+", re.search(
        r'packages_build="([^"]*)"', read(root, "scripts/setup.sh"))[1]))
    # scripts/setup.sh must install the same packages, besides those that every
    # build needs and those of tests.
    for name in listed - {"build-essential", "ninja-build", "openmpi-bin",
                          "libcmocka-dev"}:
        assert re.search(rf"\b{re.escape(name)}\b", needed), name
    version = re.search(r"version: '([\d.]+)'", read(root, "meson.build"))[1]
    assert read(root, "debian/changelog").startswith(f"penstock ({version})")


def main():
    root, what = map(os.path.abspath, sys.argv[1:3])
    commands = commands_of(root)
    if len(sys.argv) > 3:
        usage = ask(sys.argv[3], "--help")
        assert set(re.findall(r"^  ([a-z]+) +\S", usage.split("commands:")[1],
                              re.MULTILINE)) == set(commands)
    all_is_installed(root, installed(what), commands,
                     None if os.path.isdir(what)
                     else os.path.basename(what).split("_")[0],
                     os.path.isdir(what) and shares(what))
    unit_is_closed(root)
    lnav_reads(root)
    sources_are_there(root)


if __name__ == "__main__":
    main()
