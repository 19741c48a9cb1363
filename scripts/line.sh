#!/bin/sh
# Runs a command and prints one line about it, as go test does about a package: line.sh NAME COMMAND…
# Prints the command's output if it fails, and its lines about what was not tested.
name=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
start=$(date +%s)
if "$@" >"$out" 2>&1; then
	grep -E '^[a-z]+: .*( not tested|left out)' "$out"
	echo "PASS  $name ($(($(date +%s) - start))s)"
else
	code=$?
	cat "$out"
	echo "FAIL  $name ($(($(date +%s) - start))s)"
	exit $code
fi
