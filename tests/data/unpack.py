#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks the files of archives into a new folder: unpack.py STAMP FOLDER
ARCHIVE... (STAMP is a file that is written at the end, with their names)."""
import shutil
import sys
import tarfile
from pathlib import Path

stamp, folder, archives = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
for archive in archives:
    with tarfile.open(archive) as files:
        for member in files:
            # An archive may contain only plain files, each directly in its
            # folder.
            if not member.isfile() or "/" in member.name:
                sys.exit(f"{archive}: {member.name} is not a plain file")
            (folder / member.name).write_bytes(files.extractfile(member).read())
Path(stamp).write_text("\n".join(archives) + "\n", encoding="utf-8")
