#!/usr/bin/env bash
# Makes deploy/constraints.txt, deploy/requirements.lock and deploy/sbom.json anew from pyproject.toml. With --upgrade every
# package moves to its last release that pyproject.toml allows; otherwise only what pyproject.toml requires changes.
# Needs: pip install uv cyclonedx-bom
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# torch has a build for each kind of processor and GPU, whose checksums differ: pyproject.toml pins its version. Those for
# GPUs pin Triton.
printf 'torch\ntriton\n' >"$work/excludes"
export UV_CUSTOM_COMPILE_COMMAND=deploy/lock.sh
compile=(uv pip compile pyproject.toml --universal --python-version 3.11 --no-emit-index-url --no-annotate
  --excludes "$work/excludes" --quiet)

# The versions of all extras' packages, and the checksums of those that the image of deploy/Dockerfile needs.
"${compile[@]}" --all-extras --output-file deploy/constraints.txt "$@"
"${compile[@]}" --extra models --extra tracing --generate-hashes --constraint deploy/constraints.txt \
  --output-file deploy/requirements.lock

cat deploy/constraints.txt <(grep -oE '^  "torch==[^"]+' pyproject.toml | cut -c4-) >"$work/all"
cyclonedx-py requirements "$work/all" --pyproject pyproject.toml --output-reproducible --no-validate \
  --output-format JSON --output-file "$work/sbom.json"
# A component a line, without the links to PyPI that each name implies.
python3 - "$work/sbom.json" >deploy/sbom.json <<'PROGRAM'
import json, sys

sbom = json.load(open(sys.argv[1]))
kept = ("type", "bom-ref", "name", "version", "purl")
sbom["components"] = components = [{key: c[key] for key in kept} for c in sbom["components"]]
del sbom["dependencies"]  # of the root alone, and empty
text = json.dumps(sbom, indent=2)
for component in components:
    text = text.replace(json.dumps(component, indent=2).replace("\n", "\n    "), json.dumps(component))
print(text)
PROGRAM
