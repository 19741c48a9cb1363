#!/usr/bin/env bash
# Runs the tests of each package again and again, under the race detector, and reports those that fail sometimes.
# Each package is compiled once. One round runs its tests alone, with -cpu 1,2,4, and beside two busy loops. PKG:
# packages (./...). MINUTES: no run begins later than this (60); 0 means one round. Exit code 1: a test failed.
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
minutes=${MINUTES:-60}
dir=$PWD/.cache/flake
rm -rf "$dir"
mkdir -p "$dir/failed"
: >"$dir/runs"
busy=()
current= bin=

# Each loop ends when this script has ended for any reason.
start_busy() {
	for _ in 1 2; do
		bash -c 'while kill -0 "$1" 2>/dev/null; do for ((i = 0; i < 100000; i++)); do :; done; done' busy $$ &
		busy+=($!)
	done
}

stop_busy() {
	[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null
	[ ${#busy[@]} -eq 0 ] || wait "${busy[@]}" 2>/dev/null
	busy=()
}

# A line of $dir/runs is: package, mode, test, ok or FAIL, and the file that holds the output.
summary() {
	awk -F'\t' '
		{ tests[$1 " " $3] = 1; runs[$1 " " $3]++ }
		$4 == "FAIL" {
			failed[$1 " " $3]++
			modes[$1 " " $3, $2]++
			files[$1 " " $3] = files[$1 " " $3] "\n        " $5 " (" $2 ")"
		}
		END {
			for (t in tests) total++
			for (t in failed) { bad++; printf "FAIL %s: %d of %d runs%s\n", t, failed[t], runs[t], files[t] }
			printf "%d tests ran, %d of them failed at least once\n", total, bad
			exit bad > 0
		}' "$dir/runs"
}

finish() {
	trap - EXIT
	[ -z "$current" ] || { kill "$current" && wait "$current"; } 2>/dev/null
	stop_busy
	[ -z "$bin" ] || rm -rf "$bin"
	summary || exit 1
	exit "${1:-0}"
}

# Records how each test of one run ended. A run that died has no line for the tests that were
# running.
record() { # package mode log code
	local kept=- tests
	if [ "$4" -ne 0 ]; then
		kept=$dir/failed/$(basename "$3")
		cp "$3" "$kept"
	fi
	tests=$(awk '
		/^=== RUN / && $3 !~ /\// { open[$3]++ }
		/^--- (PASS|FAIL|SKIP): / { open[$3]--; print $3 "\t" ($2 == "FAIL:" ? "FAIL" : "ok") }
		END { for (t in open) if (open[t] > 0) print t "\tFAIL" }' "$3")
	if [ "$4" -ne 0 ] && ! grep -q 'FAIL$' <<<"$tests"; then
		tests+=$'\n(package)\tFAIL'
	fi
	awk -v OFS='\t' -v p="$1" -v m="$2" -v f="$kept" 'NF { print p, m, $1, $2, $2 == "FAIL" ? f : "-" }' <<<"$tests" >>"$dir/runs"
}

run() { # package directory mode flags…
	local package=$1 where=$2 mode=$3 name log code
	shift 3
	number=$((number + 1))
	name=$(tr / . <<<"$package")
	log=$dir/$name.$mode.$number.log
	printf '%s  %-8s %s ' "$(date +%T)" "$mode" "$package"
	(cd "$where" && exec "$bin/$name.test" -test.v -test.timeout 15m "$@") >"$log" 2>&1 &
	current=$!
	wait $current # in the background, so that signals are handled at once
	code=$?
	current=
	record "$package" "$mode" "$log" $code
	rm -f "$log"
	[ $code -eq 0 ] && echo ok || echo "FAILED: $dir/failed/$(basename "$log")"
}

trap finish EXIT
trap 'finish 130' INT TERM HUP
bin=$(mktemp -d) # outside the checkout, as with go test: a program inside a checkout uses its files
mapfile -t packages < <($GO list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ${PKG:-./...} | sed '/^$/d')
[ ${#packages[@]} -gt 0 ] || { echo "no package with tests in ${PKG:-./...}" >&2; finish 2; }
for entry in "${packages[@]}"; do
	package=${entry%% *}
	$GO test -race -c -o "$bin/$(tr / . <<<"$package").test" "$package" || finish 2
done

number=0
end=$(($(date +%s) + minutes * 60))
late() { [ "$minutes" -ne 0 ] && [ "$(date +%s)" -ge "$end" ]; }
while :; do
	for mode in alone cpu busy; do
		for entry in "${packages[@]}"; do
			late && exit
			case $mode in
			alone) run "${entry%% *}" "${entry#* }" alone ;;
			cpu) run "${entry%% *}" "${entry#* }" cpu -test.cpu 1,2,4 ;;
			busy)
				start_busy
				run "${entry%% *}" "${entry#* }" busy
				stop_busy
				;;
			esac
		done
	done
	[ "$minutes" -ne 0 ] || exit
done
