#!/bin/sh
# Builds or tests the web console: console.sh build|test.
# Without node, the script says so and does nothing: the built files are in the repository. In CI that is a failure.
set -eu
cd "$(dirname "$0")/../console"
what=${1:-}
case $what in
build|test) ;;
*) echo 'console.sh: want build or test' >&2; exit 2 ;;
esac

for program in node npm; do
	command -v $program >/dev/null && continue
	echo "console: $what: needs $program"
	[ -z "${CI:-}" ] && [ "$what" = test ] || exit 1
	exit 0
done
if [ ! -e node_modules/.prepared ] || [ package-lock.json -nt node_modules/.prepared ]; then
	npm ci --no-audit --no-fund --loglevel=error
	touch node_modules/.prepared
fi
case $what in
build)
	npm run --silent build
	node scripts/size.js
	;;
test)
	npm run --silent check # also that the built files are those of the sources
	npm test --silent
	;;
esac
