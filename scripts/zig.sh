#!/bin/sh
# Runs the Zig compiler that contenders/zig-std needs, with the script's
# arguments, in the current directory. The compiler comes from PyPI, in a
# virtual environment under .cache/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wanted=$root/contenders/zig-std/requirements.txt
venv=$root/.cache/ziglang
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
	command -v python3 >/dev/null || { echo 'zig.sh: it needs python3, to fetch the Zig compiler' >&2; exit 1; }
	rm -rf "$venv"
	python3 -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --requirement "$wanted" >&2
	cp "$wanted" "$venv/requirements.txt"
fi
export ZIG_GLOBAL_CACHE_DIR="${ZIG_GLOBAL_CACHE_DIR:-$root/.cache/zig-global}"
exec "$venv/bin/python" -m ziglang "$@"
