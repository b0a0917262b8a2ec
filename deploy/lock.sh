#!/usr/bin/env bash
# Makes deploy/requirements.lock and deploy/sbom.json anew from pyproject.toml. With --upgrade every package moves to its
# last release that pyproject.toml allows; otherwise only what pyproject.toml requires changes.
# Needs: pip install uv cyclonedx-bom
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# torch has a build for each kind of processor and GPU, whose checksums differ: pyproject.toml pins its version.
echo torch >"$work/excludes"
UV_CUSTOM_COMPILE_COMMAND=deploy/lock.sh uv pip compile pyproject.toml --extra models --extra tracing \
  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
  --excludes "$work/excludes" --output-file deploy/requirements.lock --quiet "$@"

{
  sed -E '/--hash=/d; s/ *\\$//' deploy/requirements.lock
  grep -oE '^  "torch==[^"]+' pyproject.toml | cut -c4-
} >"$work/all"
cyclonedx-py requirements "$work/all" --pyproject pyproject.toml --output-reproducible --no-validate \
  --output-format JSON --output-file deploy/sbom.json
