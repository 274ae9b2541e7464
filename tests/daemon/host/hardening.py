# SPDX-License-Identifier: Apache-2.0
"""Checks that programs that read untrusted data have hardening options.

usage: hardening.py fortify|plain PROGRAM...
"""
import platform
import subprocess
import sys


def readelf(option, program):
    return subprocess.run(["readelf", option, "-W", program], check=True,
                          capture_output=True, text=True).stdout


MARKED = 1000  # minimum number of functions that begin with endbr64


def marks(program):
    code = subprocess.run(["objdump", "-d", program], check=True,
                          capture_output=True, text=True).stdout
    return code.count("endbr64")


def main():
    for program in sys.argv[2:]:
        kind = [line for line in readelf("-h", program).splitlines()
                if "Type:" in line][0]
        assert " DYN " in kind, (program, "no PIE", kind)
        segments = readelf("-l", program)
        assert "GNU_RELRO" in segments, (program, "no RELRO")
        stack = [line for line in segments.splitlines() if "GNU_STACK" in line]
        assert len(stack) == 1 and "RWE" not in stack[0], (program, stack)
        assert "NOW" in readelf("-d", program), (program, "RELRO is not full")
        symbols = readelf("--dyn-syms", program)
        assert "__stack_chk_fail" in symbols, (program, "no canaries")
        if platform.machine() == "x86_64":
            assert marks(program) >= MARKED, (program, "jumps go anywhere")
        if sys.argv[1] == "fortify":
            assert "_chk@" in symbols.replace("__stack_chk_fail@", ""), \
                (program, "no FORTIFY")
    return 0


if __name__ == "__main__":
    sys.exit(main())
