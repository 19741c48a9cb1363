#!/bin/sh
# Prepares, tests or packs the client libraries in clients/: clients.sh prepare|test|pack [ts|python|go …].
# With RACE, the Go library is tested under the race detector. If a toolchain is missing, the script says so and skips that library; in CI that is a failure.
set -eu
cd "$(dirname "$0")/../clients"
root=$(dirname "$PWD")
go=${GO:-go}
what=${1:-}
case $what in
prepare|test|pack) shift ;;
*) echo 'clients.sh: want prepare, test or pack, and then names of libraries' >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- ts python go

have() {
	command -v "$1" >/dev/null && return
	echo "clients: $2 not tested: needs $1"
	[ -z "${CI:-}" ] || exit 1
	return 1
}

# stale reports whether a mark is missing, or older than one of the files.
stale() {
	mark=$1; shift
	[ ! -e "$mark" ] || [ -n "$(find "$@" -newer "$mark" -print -quit)" ]
}

prepare_ts() {
	have node ts && have npm ts || return 0
	cd ts
	if stale node_modules/.prepared package-lock.json; then
		npm ci --no-audit --no-fund --loglevel=error
		touch node_modules/.prepared
	fi
	if [ ! -d dist ] || stale node_modules/.built src package.json tsconfig.json scripts; then
		npm run --silent build
		touch node_modules/.built
	fi
	cd react
	if stale node_modules/.prepared package-lock.json; then
		npm ci --no-audit --no-fund --loglevel=error
		touch node_modules/.prepared
	fi
	if [ ! -d dist ] || stale node_modules/.built src package.json tsconfig.json ../node_modules/.built; then
		npm run --silent build
		touch node_modules/.built
	fi
	cd ../..
}

test_ts() {
	have node ts || return 0
	base=${TIDEWIRE_URL#ws://}
	(cd ts && TIDEWIRE_URL=http://${base%/ws} npm test --silent)
	(cd ts/react && npm test --silent)
}

pack_ts() {
	have npm ts || return 0
	(cd ts && npm pack --silent --pack-destination "$root/.cache/clients")
	(cd ts/react && npm pack --silent --pack-destination "$root/.cache/clients")
}

prepare_python() {
	have python3 python || return 0
	cd python
	if stale .venv/.prepared requirements-dev.txt pyproject.toml; then
		python3 -m venv .venv
		.venv/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e .
		touch .venv/.prepared
	fi
	cd ..
}

test_python() {
	have python3 python || return 0
	cd python
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy --no-error-summary
	.venv/bin/pytest -q
	cd ..
}

pack_python() { have python3 python || return 0; (cd python && .venv/bin/python -m build --outdir "$root/.cache/clients" >/dev/null); }

prepare_go() { (cd go && $go mod download); }

test_go() {
	for module in go go/inprocess go/bench; do
		cd $module
		$go mod tidy -diff
		$go vet ./...
		"$root/.cache/tools/staticcheck" ./...
		$go test ${RACE:+-race} ./...
		cd "$root/clients"
	done
}

# A module is published as a tag of the repository; the archive has the same files.
pack_go() { git archive --format=zip -o "$root/.cache/clients/tidewire-client-go.zip" HEAD go; }

# A server for the tests that need one.
serve() {
	data=$(mktemp -d)
	chmod 755 "$data" # as root, PostgreSQL runs as another user
	log=$data/log
	: >"$log"
	env -u GOGC "$root/bin/tidewire" serve --port 0 --data-dir "$data/data" --stored-rooms 'stored-*' >"$log" 2>&1 &
	server=$!
	trap 'kill $server; wait $server || true; rm -rf "$data"' EXIT
	until grep -q 'listening on ' "$log"; do
		kill -0 $server 2>/dev/null || { cat "$log"; exit 1; }
		sleep 0.2
	done
	TIDEWIRE_URL=ws://127.0.0.1:$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$log")/ws
	export TIDEWIRE_URL
}

mkdir -p "$root/.cache/clients"
[ "$what" != test ] || serve
for library in "$@"; do
	echo "--- clients: $what $library"
	"${what}_$library"
done
[ "$what" != pack ] || { echo '--- clients: packages'; ls "$root"/.cache/clients/*.*; }
