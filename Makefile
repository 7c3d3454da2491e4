# The targets a developer needs. `make test` is what CI runs (.ci/run).
GO      ?= go
BIN     := bin/weir
ORACLE  ?= ../shared/oracle/kafka
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 10s

export WEIR_ORACLE ?= $(abspath $(ORACLE))

.PHONY: build check test race fuzz bench bench-go interop interop-full soak sim sim-mutations generate lint clean

build: ## one static binary in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/weir

check: ## the quick one: format, vet, architecture rules, unit and scenario tests
	@test -z "$$(gofmt -l cmd internal test bench)" || { gofmt -l cmd internal test bench; echo 'run: gofmt -w cmd internal test bench'; exit 1; }
	$(GO) vet ./...
	$(GO) test -short ./cmd/... ./internal/...

test: check race build interop ## everything CI runs

race: ## the packages with goroutines, under the race detector
	$(GO) test -short -race ./internal/network ./internal/partition ./internal/replication ./internal/statemachine ./internal/storage/...

interop: build ## clients, tools and disks of the real Apache Kafka, in short form
	$(GO) test -count=1 -tags interop ./internal/records ./internal/tool/storage
	$(GO) test -count=1 -timeout 20m -p 1 ./test/... ./bench

interop-full: build ## all of it; writes test/results/interop-full.json
	WEIR_FULL=1 $(GO) test -count=1 -timeout 180m -p 1 ./test/interop/... ./test/clients/... ./test/wire/... ./test/suites/...

soak: build ## the long fault runs; writes test/results/soak.json and faults.json
	WEIR_FULL=1 $(GO) test -count=1 -timeout 180m ./test/cluster/...
	WEIR_FULL=1 $(GO) test -count=1 -timeout 60m -run 'PowerCut|Crash' ./internal/...

sim: ## 2,000 seeds of a whole cluster in one goroutine; seeds of the power-cut and scenario runs beyond the fixed ones
	WEIR_SEEDS=2000 $(GO) test -count=1 -timeout 60m -run 'TestSeeds$$' -v ./internal/sim
	WEIR_SEEDS=200 $(GO) test -count=1 -run 'PowerCut|Scenario|Random' ./internal/...

sim-mutations: ## plants each bug of internal/sim/mutations.txt and lets the simulation find it
	WEIR_MUTATIONS=. $(GO) test -count=1 -timeout 120m -run 'TestMutations$$' -v ./internal/sim

fuzz: ## each fuzz target for FUZZTIME
	@for p in $$($(GO) list ./internal/...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

# make bench ONLY=produce,consume SYSTEM=weir SMALL=1 LOCK=FILE
bench: build ## the same load on Weir and on Apache Kafka (all of it: 45 minutes); what both have run goes to test/results/bench.json
	@mkdir -p bin && $(GO) test -c -o bin/weir-bench ./bench
	@cd bench && WEIR_BIN=$(abspath $(BIN)) ../bin/weir-bench -test.run '^TestBench$$' -test.timeout 60m -full \
	  $(if $(ONLY),-only $(ONLY)) $(if $(SYSTEM),-system $(SYSTEM)) $(if $(SMALL),-small) $(if $(LOCK),-lock $(LOCK))

bench-go: ## benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

generate: ## code generated from our schema text
	$(GO) generate ./internal/...

lint: ## golangci-lint; builds the linter the first time
	$(GO) run $(LINT) run ./...

clean:
	rm -rf bin
