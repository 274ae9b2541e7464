#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Debian packages libpenstock0 and libpenstock-dev from a build, and
uses them: pair.py ROOT BUILD CC FORTRAN|none.

The files come from `meson install`, the packages from the tools of debhelper
that debian/rules runs, so dpkg-gensymbols compares the library with
debian/libpenstock0.symbols. dpkg unpacks the packages into a folder, where
pkg-config finds what programs in C and Fortran are compiled with; they, and one
in Python, then run with the unpacked library alone. Ends with 77 if debhelper
is missing. scripts/package.sh installs the packages in a fresh Debian.
"""
import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "daemon"))
from patience import PATIENCE  # noqa: E402

PAIR = "libpenstock0", "libpenstock-dev"


def call(*words, **options):
    done = subprocess.run(words, text=True, check=False, timeout=PATIENCE,
                          capture_output=True, **options)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def install(build, to):
    """Installs the build, as one with the prefix /usr."""
    call("meson", "install", "-C", build, "--no-rebuild", "--quiet",
         "--destdir", to)
    os.rename(f"{to}/usr/local", f"{to}/local")
    shutil.rmtree(f"{to}/usr")
    os.rename(f"{to}/local", f"{to}/usr")
    pc, = glob.glob(f"{to}/usr/lib/*/pkgconfig/penstock.pc")
    with open(pc, encoding="utf-8") as file:
        text = file.read()
    with open(pc, "w", encoding="utf-8") as file:
        file.write(text.replace("prefix=/usr/local\n", "prefix=/usr\n"))


def packages(root, build, folder):
    """Builds the two packages. Returns the paths of the files."""
    shutil.copytree(f"{root}/debian", f"{folder}/source/debian")
    install(build, f"{folder}/source/debian/tmp")
    env = dict(os.environ, DEB_BUILD_OPTIONS="nostrip")
    each = [f"-p{name}" for name in PAIR]
    for tool, *words in (("dh_install",), ("dh_installdocs",),
                         ("dh_installchangelogs",), ("dh_makeshlibs", "--",
                                                     "-c4"),
                         ("dh_shlibdeps",), ("dh_gencontrol",),
                         ("dh_md5sums",), ("dh_builddeb",)):
        call(tool, *each, *words, cwd=f"{folder}/source", env=env)
    found = [glob.glob(f"{folder}/{name}_*_*.deb") for name in PAIR]
    assert all(len(one) == 1 for one in found), os.listdir(folder)
    return [one for one, in found]


def describe(library, header):
    """The packages depend on each other, and on libraries by their packages'
    names; the first one has a file of symbols."""
    fields = call("dpkg-deb", "-f", header, "Depends")
    version = call("dpkg-deb", "-f", library, "Version").strip()
    assert f"libpenstock0 (= {version})" in fields, fields
    assert "libdlpack-dev" in fields, fields
    depends = call("dpkg-deb", "-f", library, "Depends")
    for name in "libc6", "libopenmpi3", "libopenblas0-pthread":
        assert name.partition("-")[0] in depends, (name, depends)
    symbols = call("dpkg-deb", "-I", library, "symbols")
    assert " penstock_open@PENSTOCK_0 0.1.0\n" in symbols, symbols


def unpack(debs, root):
    """Installs the packages into a folder, as dpkg does it."""
    os.makedirs(f"{root}/var/lib/dpkg/info")
    os.makedirs(f"{root}/var/lib/dpkg/updates")
    with open(f"{root}/var/lib/dpkg/status", "w", encoding="utf-8"):
        pass
    call("dpkg", f"--root={root}", "--force-depends", "--force-not-root",
         "--force-script-chrootless", "--log=/dev/null", "-i", *debs)
    listed = call("dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W",
                  "-f", "${Package} ${db:Status-Status}\n")
    assert listed == "libpenstock-dev installed\nlibpenstock0 installed\n", \
        listed


class Installed:
    def __init__(self, root, at, folder):
        self.root, self.at, self.folder = root, at, folder
        pc, = glob.glob(f"{at}/usr/lib/*/pkgconfig")
        self.lib = os.path.dirname(pc)
        env = dict(os.environ, PKG_CONFIG_LIBDIR=pc, PKG_CONFIG_SYSROOT_DIR=at)
        self.flags = [call("pkg-config", word, "penstock", env=env).split()
                      for word in ("--cflags", "--libs")]
        assert any(self.at in word for word in self.flags[1]), self.flags
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("PENSTOCK_")}
        self.env["LD_LIBRARY_PATH"] = self.lib

    def build(self, compiler, name, *sources):
        program = f"{self.folder}/{name}"
        call(*compiler.split(), *self.flags[0], *sources, *self.flags[1], "-o",
             program, cwd=self.folder)
        used = call("ldd", program, env=self.env)
        assert f"libpenstock.so.0 => {self.lib}/" in used, used
        return program

    def run(self, *words):
        return call(*words, env=self.env, cwd=self.folder)


def in_c(here, cc):
    program = here.build(cc, "digits", f"{here.root}/examples/library/digits.c")
    with gzip.open(f"{here.root}/examples/digits/digits.csv.gz") as file, \
            open(f"{here.folder}/digits.csv", "wb") as out:
        shutil.copyfileobj(file, out)
    said = here.run(program, f"{here.root}/tests/golden/digits.pt2",
                    f"{here.folder}/digits.csv", "5")
    assert "step 5: loss " in said, said


def in_fortran(here, compiler):
    """The program of the page, with the module of the package."""
    with open(f"{here.root}/docs/library.md", encoding="utf-8") as file:
        program, = re.findall(r"```fortran\n(.*?)```", file.read(), re.S)
    source = f"{here.folder}/train.f90"
    with open(source, "w", encoding="utf-8") as file:
        file.write(program.replace("model.pt2", f"{here.root}/examples/"
                                   "fortran/closure.pt2"))
    # Paths of a test may be longer than a line of Fortran.
    said = here.run(here.build(f"{compiler} -ffree-line-length-none", "train",
                               f"{here.at}/usr/include/penstock.f90", source))
    losses = [float(line.split()[1]) for line in said.splitlines()]
    assert len(losses) == 10 and losses[-1] < losses[0], losses


def in_python(here):
    text = ("import penstock, array\n"
            "print(penstock.load())\n"
            "with penstock.Model(%r) as m:\n"
            "    print(len(m.parameters), penstock.__file__)\n" %
            f"{here.root}/tests/golden/tiny.pt2")
    here.env["PYTHONPATH"] = f"{here.at}/usr/share/penstock"
    here.env["PYTHONDONTWRITEBYTECODE"] = "1"
    version, rest = here.run(sys.executable, "-c", text).splitlines()
    assert version == "0.1.0" and here.at in rest, (version, rest)


def main():
    root, build, cc, fortran = sys.argv[1:]
    root, build = os.path.abspath(root), os.path.abspath(build)
    if shutil.which("dh_builddeb") is None:
        print("debhelper is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        debs = packages(root, build, folder)
        describe(*debs)
        unpack(debs, f"{folder}/root")
        here = Installed(root, f"{folder}/root", folder)
        in_c(here, cc)
        if fortran != "none":
            in_fortran(here, fortran)
        in_python(here)


main()
