#!/bin/sh
# Vets, builds and tests the servers of contenders/, then checks that all of them
# follow the one contract. Builds are debug builds; `tidewire bench` makes its
# own. If a toolchain is missing, the script says so and skips its servers; in CI
# that is a failure.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
root=$(pwd)
# The two Rust servers share most of their libraries.
export CARGO_TARGET_DIR="$root/.cache/cargo"

# rustup's cargo exists even without a toolchain, but then it cannot run anything.
have() {
	command -v "$1" >/dev/null && "$1" --version >/dev/null 2>&1 && return
	echo "contenders: $2 not tested: needs $1, and one that runs (rustup: rustup default stable)"
	[ -z "${CI:-}" ] || exit 1
	return 1
}

# Download first, at the same time as the work that needs no download.
fetching=
if have python3 zig-std; then
	./scripts/zig.sh version >/dev/null &
	fetching=$!
fi

all=
for name in go-gorilla-echo go-gorilla go-fiber; do
	echo "--- $name"
	cd "contenders/$name"
	$go vet ./...
	$go build -o bin/ .
	if [ $name != go-gorilla-echo ]; then
		$go mod tidy -diff
		"$root/.cache/tools/staticcheck" ./...
		$go test -race ./...
		all=$all,$name=$root/contenders/$name/bin/$name
	fi
	cd "$root"
done

if [ -n "$fetching" ]; then
	echo '--- zig-std'
	wait "$fetching"
	cd contenders/zig-std
	"$root/scripts/zig.sh" fmt --check build.zig src
	"$root/scripts/zig.sh" build test
	"$root/scripts/zig.sh" build --prefix bin --prefix-exe-dir .
	cd "$root"
	all=$all,zig-std=$root/contenders/zig-std/bin/zig-std
fi

if have cargo 'rust-tungstenite and rust-axum'; then
	# clippy as the compiler of the two packages: cargo clippy would compile all libraries a second time.
	if clippy-driver --version >/dev/null 2>&1; then
		export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
	else
		echo 'contenders: clippy is not installed: left out'
	fi
	for name in rust-tungstenite rust-axum; do
		echo "--- $name"
		cd "contenders/$name"
		# Build the tests too, so that libraries are compiled with one set of features.
		CARGO_INCREMENTAL=0 cargo build --quiet --locked --all-targets
		CARGO_INCREMENTAL=0 cargo test --quiet --locked
		if cargo fmt --version >/dev/null 2>&1; then
			cargo fmt --check
		else
			echo 'contenders: cargo fmt is not installed: left out'
		fi
		cd "$root"
		all=$all,$name=$CARGO_TARGET_DIR/debug/$name
	done
fi

echo "--- one contract"
# The other tests already check Tidewire itself.
TIDEWIRE_CONTENDERS=${all#,} $go test -count=1 -timeout 5m -run TestConformance ./contenders/conformance
