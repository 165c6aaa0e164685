#!/usr/bin/env bash
# Makes .venv from the hashed requirement files; a second run with unchanged files does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(cat tools/bootstrap.sh requirements/bootstrap.txt requirements/dev.txt pyproject.toml | sha256sum | cut -d' ' -f1)
[ "$(cat .venv/.bootstrap 2>/dev/null || true)" = "$want" ] && exit 0

python=${PYTHON:-}
for candidate in python3.13 python3.12 python3.11 python3; do
  [ -n "$python" ] && break
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$candidate
  fi
done
if [ -z "$python" ]; then
  echo "Python 3.11 or newer with venv is needed: install it (Debian: apt-get install -y python3 python3-venv), or set PYTHON=/path/to/python3." >&2
  exit 1
fi

echo "Preparing .venv (once per change of requirements/) …" >&2
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip --version >/dev/null 2>&1 || .venv/bin/python -m ensurepip >/dev/null
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
export VIRTUAL_ENV=$PWD/.venv
.venv/bin/uv pip install --quiet --require-hashes -r requirements/bootstrap.txt -r requirements/dev.txt
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
# Compiled now: hundreds of short processes follow, and PYTHONDONTWRITEBYTECODE may be set for them. Some packages carry
# templates that are no Python.
.venv/bin/python -m compileall -qq -j 0 .venv/lib operator/src || true
echo "$want" > .venv/.bootstrap
