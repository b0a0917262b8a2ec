#!/usr/bin/env bash
# Reports known vulnerabilities of the locked packages. Exit status 1 if there are any, or if one could not be looked up.
# Needs: pip install pip-audit, and the vulnerability service of PyPI, or with `--vulnerability-service osv` that of OSV.
set -euo pipefail
cd "$(dirname "$0")/.."
pip-audit --requirement deploy/requirements.lock --require-hashes --disable-pip --strict --desc off "$@"
