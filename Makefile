# make          build bin/tidewire
# make run      server with its own PostgreSQL
# make test     what a change can break
# make quick    fast tests of the packages that you changed
# make help     all targets

GO      ?= go
TOOLS   := $(CURDIR)/.cache/tools
ARGS    ?=
PKG     ?= ./...
# The slowest packages, which begin first: at the end no core waits for one of them.
SLOW_FIRST = $(if $(filter ./...,$(PKG)),./internal/cli ./stream ./queue ./internal/gateway ./eventstore ./websocket)
# The packages whose goroutines share memory. The others run processes, or wait for PostgreSQL.
RACE = ./websocket ./stream ./queue ./eventstore ./standby $(addprefix ./internal/,access auth bench budget cluster engine/... gateway ingest ingestlog limits live overview pg presence relay/... room schedule streamwriter wsproxy)
# The commit is part of every result. The build also works if git does not trust the checkout.
VCS     := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
K6_SCENARIOS := $(sort $(filter-out chat,$(basename $(notdir $(wildcard internal/bench/k6/*.js)))))

# Compilers, analyzers and tests have small heaps for a short time: with less garbage collection they take a third less.
build check quick unit test-race clients-ready clients-test console-test contenders conformance: export GOGC = 400

.DEFAULT_GOAL := build
.PHONY: build run test quick test-race check docs unit line-clients line-console prepared console console-test screenshots clients clients-ready clients-test contenders conformance mutants bench bench-go bench-fairness bench-auth bench-clients k6 test-long test-flake test-hostile test-cluster fuzz clean help FORCE

# Without what only a debugger needs (-s): that is a third of the size. Stack traces and profiles do not need it.
## build: write bin/tidewire (the default)
build:
	$(GO) build -buildvcs=$(VCS) -ldflags=-s -o bin/tidewire ./cmd/tidewire

## run: build, and run the server with its own PostgreSQL (ARGS='--port 9000')
run: build
	./bin/tidewire serve $(ARGS)

# What mostly waits, for downloads or for the one core of an interpreter, runs beside something else.
BESIDE = $(MAKE) -k -j4 --no-print-directory

## test: what a change can break: check, Go tests, one conformance run of the client libraries, their own tests, console
test:
	@$(BESIDE) prepared $(TOOLS)/staticcheck $(TOOLS)/depguard $(TOOLS)/gotestsum
	@$(BESIDE) check line-clients line-console unit

## quick: tests (-short) of the Go packages that differ from main, and of those that import them directly
quick: $(TOOLS)/gotestsum
	@packages=$$(GO='$(GO)' ./scripts/quick.sh) && if [ -z "$$packages" ]; then echo 'quick: no Go package differs from main'; \
		else $(GO_TEST) -short -timeout 5m $$packages; fi

## test-race: the packages with concurrency, under the race detector (PKG=./stream RUN=TestAppend)
test-race: $(TOOLS)/gotestsum
	$(if $(filter ./...,$(PKG)),@RACE=1 ./scripts/line.sh clients/go $(MAKE) clients-test LIBRARY=go)
	@GORACE=atexit_sleep_ms=0 $(GO_TEST) -race -timeout 15m $(if $(RUN),-run '$(RUN)') $(if $(filter ./...,$(PKG)),$(RACE),$(PKG))

# Files that are deleted and not committed are not there; those that are not added yet are.
GO_FILES = git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [ ! -e "$$f" ] || echo "$$f"; done

## check: formatting, vet, staticcheck, import rules, tidy modules, no sleeps in tests
check: $(TOOLS)/staticcheck $(TOOLS)/depguard
	@test -z "$$(gofmt -l $$($(GO_FILES)))" || { echo 'gofmt these:'; gofmt -l $$($(GO_FILES)); exit 1; }
	$(GO) run ./internal/testkit/sleeps $$($(GO_FILES) | grep _test)
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(TOOLS)/staticcheck ./...
	$(TOOLS)/depguard ./...

## docs: write docs/reference/messages.md and http.md from internal/wire/spec
docs:
	$(GO) run ./internal/wire/spec/write docs/reference

# One PostgreSQL for all packages, of which three run at a time: they wait a third of the time. No second vet, and no symbols,
# which only a debugger needs.
GO_TEST = $(GO) run ./internal/pgtest/run $(TOOLS)/gotestsum --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --hide-summary skipped,output \
	--jsonfile .cache/test.json --post-run-command ./scripts/slowest.sh -- -vet=off -ldflags='-s -w' -p 3

## unit: tests of the Go packages (PKG=./stream RUN=TestAppend)
unit: $(TOOLS)/gotestsum
	@$(GO_TEST) -count=1 -timeout 10m $(if $(RUN),-run '$(RUN)',$(SLOW_FIRST)) $(PKG)

# Tests of what is not Go, or in a module of its own: one line each.
line-clients line-console: line-%:
	@./scripts/line.sh $* $(MAKE) $*-test

prepared: build
	@./scripts/line.sh 'clients, prepared' $(MAKE) clients-ready

## clients: build the packages of the client libraries, in .cache/clients (node and npm, python3)
clients: clients-ready
	GO='$(GO)' ./scripts/clients.sh pack

# The suite in clients/conformance, which unit runs, needs them.
clients-ready:
	GO='$(GO)' ./scripts/clients.sh prepare

## clients-test: the libraries' own tests (LIBRARY=ts); those of all libraries together are in clients/conformance
clients-test: build clients-ready $(TOOLS)/staticcheck
	GO='$(GO)' ./scripts/clients.sh test $(LIBRARY)

## console: build the web console from console/src into internal/console/dist, which is committed (node and npm)
console:
	./scripts/console.sh build

## screenshots: take the pictures of the documents again, from a real server (Chromium)
screenshots: build console
	cd console && node scripts/screenshots.js

## console-test: the built files are those of the sources; tests of the console, also in Chromium if it is there
console-test: build
	./scripts/console.sh test

## contenders: vet, build and test the servers that Tidewire is compared with, and check that they follow one contract (cargo, python3)
contenders: $(TOOLS)/staticcheck
	GO='$(GO)' ./scripts/contenders.sh

## conformance: the WebSocket cases of Autobahn's suite (needs python3); with ALL=true all of compression too
conformance: build
	./scripts/conformance.sh

## bench: measure ingest: a million messages by every strategy (minutes)
bench: build
	./bin/tidewire bench ingest --messages 1000000 --naive-messages 100000 --repeat 3 $(ARGS)

## bench-go: the event store's operations as Go benchmarks, for benchstat (BENCH=AppendIf)
bench-go:
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),6) ./eventstore

## bench-fairness: measure how evenly 1,000 partitions and 100 event stores share a pool; each target in results/fairness.tsv (APPENDS=60)
bench-fairness:
	mkdir -p results
	$(GO) test -run '^$$' -bench '^BenchmarkFairness$$' -benchtime $(or $(APPENDS),60)x -timeout 60m ./internal/bench/fairness -targets '$(CURDIR)/results/fairness.tsv'

## bench-auth: measure what tokens, rules and limits cost a server, beside one in open mode (ROUNDS=10)
bench-auth:
	$(GO) test -run '^$$' -bench '^BenchmarkAuthCost$$' -benchtime 1x -timeout 60m ./internal/bench/authcost -rounds $(or $(ROUNDS),10)

## bench-clients: the client libraries beside those of NATS JetStream, in turn (ROUNDS=3 ONLY=Go; node, npm, python3)
bench-clients: build clients-ready
	python3 scripts/bench_clients.py --rounds $(or $(ROUNDS),3) --only '$(ONLY)'

## k6: load a running chat server with k6 (SCENARIO=steady WS_URL=ws://127.0.0.1:8080/ws)
k6:
	@test -n '$(filter $(SCENARIO),$(K6_SCENARIOS))' || { echo "SCENARIO is '$(SCENARIO)': want one of $(K6_SCENARIOS)" >&2; exit 2; }
	K6_NO_USAGE_REPORT=true $(GO) run go.k6.io/k6@v1.8.1 run internal/bench/k6/$(SCENARIO).js

## test-long: other systems, contenders, every browser flow, all of Autobahn, ten seeds of each fault test, PostgreSQL 14 to 18 (hours)
test-long: export TIDEWIRE_TEST_LONG = 1
test-long: $(TOOLS)/gotestsum build prepared
	GOOS=darwin $(GO) vet ./websocket ./internal/bench ./internal/embedpg ./internal/fault
	$(MAKE) contenders console-test
	ALL=true ./scripts/conformance.sh
	TIDEWIRE_SEEDS=10 TIDEWIRE_TEST_RACE=1 $(GO_TEST) -race -count=1 -timeout 120m $(SLOW_FIRST) ./...
	for version in 14 15 16 17 18; do \
		TIDEWIRE_TEST_PG=fetch:$$version $(GO_TEST) -count=1 -timeout 60m \
			./internal/pg ./migrate ./stream ./queue ./eventstore ./internal/ingest ./internal/cli || exit 1; done

## mutants: put faults into a package, and count those that its tests, and those of packages that import it, catch (PKG=./stream SEED=7 COUNT=10)
mutants:
	$(GO) run ./internal/mutants -pkg $(PKG) -seed $(or $(SEED),1) -n $(or $(COUNT),10)

## test-flake: every package's tests again and again, alone, with -cpu 1,2,4 and beside busy loops (PKG=./stream MINUTES=60)
test-flake:
	GO='$(GO)' PKG='$(PKG)' MINUTES='$(MINUTES)' ./scripts/flake.sh

## test-hostile: attacks on a running server beside well-behaved clients, in open and in closed mode, each built with the race detector and without; then a table (MODE=closed SEED=7 DURATION=5m ATTACK=trickle)
test-hostile: build
	@code=0; table=$$(mktemp); for mode in $(or $(MODE),open closed); do for server in '' '$(CURDIR)/bin/tidewire'; do \
		MODE="$$mode" SEED='$(SEED)' DURATION='$(or $(DURATION),5m)' ATTACK='$(ATTACK)' TIDEWIRE_HOSTILE_SERVER="$$server" TIDEWIRE_HOSTILE_TABLE="$$table" \
			$(GO) test -race -count=1 -timeout 0 -v -run '^TestHostile$$' ./internal/hostile || code=1; done; done; cat "$$table"; rm "$$table"; exit $$code

## test-cluster: nodes and networks fail for hours, under load; network faults need root (FAULTS=1000 SEED=7)
test-cluster: build
	./bin/tidewire bench cluster --faults $(or $(FAULTS),1000) --seed $(or $(SEED),$(shell date +%s)) $(ARGS)

## fuzz: each fuzz target for a minute
fuzz:
	for package in ./websocket ./stream ./internal/gateway ./internal/auth ./internal/cli ./internal/cluster; do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep ^Fuzz); do \
			$(GO) test -fuzz "^$$target$$" -fuzztime 60s $$package || exit 1; done; done

## clean: remove build outputs; data and results stay
clean:
	rm -rf bin .cache contenders/*/bin contenders/*/target contenders/*/zig-out contenders/*/.zig-cache

## help: this list
help:
	@sed -n 's/^## //p' Makefile

$(TOOLS)/%: tools/go.mod
	@mkdir -p $(TOOLS)
	cd tools && GOBIN=$(TOOLS) $(GO) install $$($(GO) list tool | grep '/$*$$')
	@touch $@
