#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program with a new folder as its last argument.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" "$folder"
