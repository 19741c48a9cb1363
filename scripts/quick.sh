#!/bin/sh
# Prints the Go packages that differ from the last commit on main, and those that import them, for make quick.
set -eu
cd "$(dirname "$0")/.."
base=main
git rev-parse -q --verify main >/dev/null || base=HEAD
# Each package, and then what it and its tests import.
${GO:-go} list -f '{{.Dir}} {{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... >.cache/packages
{ git diff --name-only "$base" --; git ls-files --others --exclude-standard; } |
	# A file that is not Go (SQL, test data, an asset) belongs to the nearest folder with a package.
	awk -v root="$PWD" '
		NR == FNR { path[$1] = $2; for (i = 3; i <= NF; i++) uses[$2, $i] = 1; next }
		{
			dir = root "/" $0
			while (sub("/[^/]*$", "", dir) && length(dir) > length(root)) if (dir in path) { changed[path[dir]] = 1; break }
			if (length(dir) <= length(root) && ($0 ~ /^(clients|console|contenders)\//)) other[substr($0, 1, index($0, "/") - 1)] = 1
		}
		END {
			for (d in path) { p = path[d]; if (p in changed) { print p; continue } for (c in changed) if ((p, c) in uses) { print p; break } }
			for (o in other) print "quick: " o " differs: make clients-test, console-test or contenders tests it" > "/dev/stderr"
		}' .cache/packages -
