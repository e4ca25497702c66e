# make help tells what there is.

GO      ?= go
ARGS    ?=
DIST    ?=
BENCH   ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X umbra/internal/buildinfo.version=$(VERSION)
# Every fuzz target gets this long in make fuzz.
FUZZTIME ?= 30s

# One way to compile for the program, its tests and what checks it, so that each
# package is compiled once; a second time for the race detector, which needs cgo.
# Gin encodes MessagePack, which nothing here does, with a library of 6 MB.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath -tags=nomsgpack)
export CGO_ENABLED := 0

.DEFAULT_GOAL := build
.PHONY: help check race build embed run man dist licenses tools test fleet bench soak lint fuzz clean FORCE

help: ## tell what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

build: bin/umbra ## build bin/umbra

LUAU := internal/sandbox/luau
UI := httpapi/ui

# The Luau interpreter comes from a pinned npm package; it is fetched once, and
# patched and put where the program embeds it.
embed: $(LUAU)/npm/node_modules/.package-lock.json $(UI)/dist/index.html ## put the Luau interpreter and the web UI where the program embeds them
	@$(GO) run ./$(LUAU)/embed -package $(LUAU)/npm/node_modules/luau-web -out $(LUAU)/engine/luau.wasm

$(LUAU)/npm/node_modules/.package-lock.json: $(LUAU)/npm/package-lock.json
	cd $(LUAU)/npm && npm ci

# The web UI is checked and bundled when a source of it is newer than the page.
$(UI)/dist/index.html: $(UI)/web/node_modules/.package-lock.json $(shell find $(UI)/web/src $(UI)/build -type f) $(UI)/web/tsconfig.json
	cd $(UI)/web && npm run --silent check
	$(GO) run ./$(UI)/build -src $(UI)/web -out $(UI)/dist

$(UI)/web/node_modules/.package-lock.json: $(UI)/web/package-lock.json
	cd $(UI)/web && npm ci

bin/umbra: embed FORCE
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/umbra

run: build ## build and start the server (ARGS='--listen 127.0.0.1:9000')
	./bin/umbra serve $(ARGS)

man: build ## write the manual's pages to bin/man
	@mkdir -p bin/man
	./bin/umbra man bin/man

# Built by a module of its own, so that its libraries are not the program's.
dist: build ## archives, .deb, container image, SBOMs and checksums in bin/dist
	cd deploy/dist && $(GO) run . -root ../.. -version '$(VERSION)' -out ../../bin/dist -umbra ../../bin/umbra $(DIST)

licenses: embed ## write the license texts that 'umbra licenses' prints
	cd deploy/dist && $(GO) run . -root ../.. licenses

# The checked packages: tests and benchmarks are not held to errcheck.
CHECKED := ./cmd/... ./config ./gitstore/... ./httpapi/... ./internal/... ./watcher

lint: ## gofmt, go vet (for macOS too), staticcheck, errcheck, misspell, and the layers
	@out=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$out" ]; then echo "not gofmt'ed:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	cd deploy/dist && $(GO) vet ./...
	cd deploy/check && $(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) tool errcheck -ignoretests -exclude .errcheck $(CHECKED)
	$(GO) tool misspell -error -locale US -i cancelled,materialise,materialised,materialises \
	  $$(git ls-files -co --exclude-standard '*.go' '*.md' '*.ts' '*.tsx' '*.yaml' | grep -v testdata)
	$(GO) test ./internal/archtest

# What a change needs before it is shown to others: what -short leaves in, with
# what is cached, and one pass of the black boxes.
check: build lint ## build, lint, unit tests and one black-box pass, in some minutes
	$(GO) test -vet=off -short $(RACED)
	UMBRA_BIN=$(CURDIR)/bin/umbra $(GO) test -vet=off -short -run 'TestScripts|TestReadme|TestMCP$$' ./tests

tools: ## install what the tests use in addition to Go (libgit2, PostgreSQL, an S3 server)
	tests/tools/setup

# What -short leaves out: crashes and faults at every call, power cuts, models.
# They run without the race detector, which makes them ten times as long; so do
# the black boxes, which would watch but themselves with it, and secrets, whose
# tests compare texts in one goroutine.
LONG  := ./tests ./gitstore ./internal/backup ./internal/blame ./internal/blob ./internal/policy/secrets ./internal/vfs ./internal/workspace ./tests/agents ./tests/clients ./tests/cluster ./tests/interop ./tests/model ./tests/openapi ./tests/powercut ./tests/ui
RACED  = $$($(GO) list ./... | grep -vxE 'umbra/(internal/(archtest|policy/secrets)|tests(/(agents|clients|cluster|interop|model|openapi|powercut|ui))?)')

# Two packages at a time: while one waits for servers, disks or leases the other
# works. lint has run go vet and archtest.
TEST  := $(GO) test -vet=off -p 2 -timeout 30m
test: tools lint build ## lint, then all tests: the short forms with the race detector, then the long ones
	UMBRA_BIN=$(CURDIR)/bin/umbra GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(TEST) -race -short $(RACED)
	UMBRA_BIN=$(CURDIR)/bin/umbra $(TEST) $(LONG)
	cd deploy/dist && UMBRA_BIN=$(CURDIR)/bin/umbra $(GO) test ./...
	cd deploy/check && $(GO) test ./...

race: tools embed ## the black boxes against a server built with the race detector
	@mkdir -p bin/race
	CGO_ENABLED=1 $(GO) build -race -o bin/race/umbra ./cmd/umbra
	UMBRA_BIN=$(CURDIR)/bin/race/umbra $(GO) test -short -p 1 -timeout 60m ./tests

# A server of a test is three nodes, so each takes three times as long.
fleet: tools build ## the black boxes against clusters of three nodes
	UMBRA_CLUSTER=3 UMBRA_BIN=$(CURDIR)/bin/umbra $(GO) test -vet=off -short -p 1 -timeout 90m ./tests

# A program of its own, not go run: that would not pass a SIGTERM on.
bench: build ## benchmarks, beside their peers (docs/BENCHMARKS.md; BENCH='-quick', '-run REGEXP', …)
	$(GO) build -o bin/bench ./tests/bench
	UMBRA_BIN=$(CURDIR)/bin/umbra bin/bench -docs docs/BENCHMARKS.md $(BENCH)

soak: tools build ## the long tests: power cuts, kills and faults by the hundred, an hour of mixed load
	UMBRA_BIN=$(CURDIR)/bin/umbra UMBRA_SOAK=1 $(GO) test -timeout 240m -count 1 ./...

fuzz: ## every fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

clean: ## remove what was built
	rm -rf bin
