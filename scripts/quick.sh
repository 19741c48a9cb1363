#!/bin/sh
# Prints the Go packages that differ from main, and those that import them directly, for make quick. What is not Go, it names on
# standard error, with the command that tests it.
set -eu
cd "$(dirname "$0")/.."
bases='main origin/main'
[ "$(git symbolic-ref -q --short HEAD)" != main ] || bases='origin/main main' # what is committed on main counts until it is pushed
for base in $bases; do
	git rev-parse -q --verify "$base" >/dev/null 2>&1 && break
	base=
done
[ -n "$base" ] || { echo 'quick: needs a git checkout with a branch main or origin/main; make unit PKG=./stream tests one package' >&2; exit 1; }
base=$(git merge-base "$base" HEAD)
# A file that was moved counts at both places.
files=$(git -c core.quotePath=false diff --name-only --no-renames "$base" -- && git -c core.quotePath=false ls-files --others --exclude-standard)
[ -n "$files" ] || exit 0
mkdir -p .cache
# Each package, and then what it and its tests import.
${GO:-go} list -f '{{.Dir}}	{{.ImportPath}}	{{join .Imports "	"}}	{{join .TestImports "	"}}	{{join .XTestImports "	"}}' ./... >.cache/packages
echo "$files" |
	# A file that is not Go (SQL, test data, an asset) belongs to the nearest folder with a package.
	awk -F '\t' -v root="$PWD" '
		BEGIN {
			by["clients"] = "make clients-test"; by["console"] = "make console-test"; by["contenders"] = "make contenders"
			by["docs"] = by["README.md"] = by["CONTRIBUTING.md"] = by["CHANGELOG.md"] = "make unit PKG=./internal/cli"
		}
		NR == FNR { path[$1] = $2; for (i = 3; i <= NF; i++) uses[$2, $i] = 1; next }
		{
			dir = root "/" $0
			while (sub("/[^/]*$", "", dir) && length(dir) > length(root)) if (dir in path) { changed[path[dir]] = 1; next }
			place = $0; sub("/.*", "", place)
			other[place] = 1
		}
		END {
			for (d in path) { p = path[d]; if (p in changed) { print p; continue } for (c in changed) if ((p, c) in uses) { print p; break } }
			for (o in other) print "quick: " o " has changes: test them with " (o in by ? by[o] : "make test") > "/dev/stderr"
		}' .cache/packages -
