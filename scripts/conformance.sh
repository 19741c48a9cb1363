#!/bin/sh
# Runs the Autobahn cases of kosoku and fails unless all pass: 247 against
# `tidewire serve --only echo`, and those about compression against a server of
# the tests of package websocket, which negotiates it: 36 of them (12.1, 13.1), or
# with ALL=true all 216 (12, 13), which take minutes. `tidewire bench echo`
# measures performance (9).
set -eu
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || {
	echo 'conformance: not run, it needs python3' >&2
	[ -z "${CI:-}" ] # in CI it is a failure
	exit
}
venv=.cache/kosoku
[ -x $venv/bin/kosoku ] || { python3 -m venv $venv && $venv/bin/pip install --quiet kosoku==0.1.0; }
${GO:-go} test -c -o .cache/websocket.test ./websocket
work=$(mktemp -d)
servers=
trap 'kill $servers 2>/dev/null; rm -rf "$work"' EXIT

# against NAME CASES OPTIONS: runs the suite against the server that was started last.
against() {
	name=$1 cases=$2
	shift 2
	for _ in $(seq 100); do grep -q '^listening' "$work/$name.out" && break; sleep 0.1; done
	port=$(sed -n 's/^listening on .*://p' "$work/$name.out")
	# Its exit code counts cases that do not apply as failures, so the report decides.
	$venv/bin/kosoku "127.0.0.1:$port" "$@" -o "$work/$name" >"$work/$name.log" 2>&1 || true
	[ -f "$work/$name/index.json" ] || { cat "$work/$name.log" "$work/$name.err"; exit 1; }
	python3 scripts/conformance.py "$work/$name" "$cases"
}

./bin/tidewire serve --only echo --port 0 >"$work/echo.out" 2>"$work/echo.err" &
servers=$!
against echo 247 -x '9.*' -x '12.*' -x '13.*'
TIDEWIRE_SERVE_ECHO=127.0.0.1:0 .cache/websocket.test -test.run '^TestServeEcho$' -test.timeout 0 >"$work/deflate.out" 2>"$work/deflate.err" &
servers="$servers $!"
if [ -n "${ALL:-}" ]; then
	against deflate 216 -i '12.*' -i '13.*' -p 4
else
	against deflate 36 -i '12.1.*' -i '13.1.*' -p 4
fi
