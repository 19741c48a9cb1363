#!/bin/sh
# Runs the Autobahn cases of kosoku against `tidewire serve --only echo` and
# fails unless all 247 pass. The compression cases (12, 13) do not apply, since
# the server does not negotiate compression. `tidewire bench echo` measures
# performance (9).
set -eu
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || {
	echo 'conformance: not run, it needs python3' >&2
	[ -z "${CI:-}" ] # in CI it is a failure
	exit
}
venv=.cache/kosoku
[ -x $venv/bin/kosoku ] || { python3 -m venv $venv && $venv/bin/pip install --quiet kosoku==0.1.0; }
work=$(mktemp -d)
./bin/tidewire serve --only echo --port 0 >"$work/out" 2>"$work/err" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -q '^listening' "$work/out" && break; sleep 0.1; done
port=$(sed -n 's/^listening on .*://p' "$work/out")
# Its exit code counts the compression cases as failures, so the report decides.
$venv/bin/kosoku "127.0.0.1:$port" -x '9.*' -o "$work/reports" >"$work/log" 2>&1 || true
[ -f "$work/reports/index.json" ] || { cat "$work/log" "$work/err"; exit 1; }
python3 scripts/conformance.py "$work/reports"
