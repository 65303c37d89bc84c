# Slipway: build, test, try. `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# State and downloads; the programs' own defaults are the same.
export SLIPWAY_HOME  ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/slipway
export SLIPWAY_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/slipway
export KUBERNETES    ?= v1.37.1

VERSION    ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)
COMMIT     ?= $(shell git rev-parse HEAD 2>/dev/null)

# How long each fuzz target runs; 1000x is a number of inputs instead.
FUZZTIME ?= 60s

# The same for all targets: what one has compiled, the next finds in Go's cache.
export GOFLAGS     ?= -trimpath
export CGO_ENABLED := 0

# Compilers are done in four fifths of the time when they collect garbage less
# often; they take up to a gigabyte each then.
compiling := GOGC=400 GOMEMLIMIT=4GiB

# The updater's client library is larger than all that the rest is made of:
# linters that go into libraries take minutes for it alone.
updater := ./images/updater
others  := ./api/... ./cmd/... ./hack/kubectl ./images ./images/echo ./images/pause ./images/probe ./internal/... ./test/...

# Tests on real clusters and servers that thorough has and test has not.
apart := ^Test(Crash|Guide|Rollback|SSH|Secrets|ServerKilled|ServerUnit)$$

# Packages whose tests leave something out under the race detector.
sampled = $(shell git grep -l --untracked 'internal/testutil/racesample"$$' -- '*_test.go' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')

pkg      := slipway.dev/slipway
ldflags  := -s -w -X $(pkg)/internal/version.version=$(VERSION) -X $(pkg)/internal/version.commit=$(COMMIT)
gobuild  := $(compiling) go build -trimpath -buildvcs=false -ldflags '$(ldflags)'
# The management server reports the version of Kubernetes that go.mod has.
embedded_kubernetes = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' go.mod)
kubernetes_parts    = $(subst ., ,$(embedded_kubernetes:v%=%))
kubernetes_flags    = $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(embedded_kubernetes) \
	-X $(p).gitMajor=$(word 1,$(kubernetes_parts)) -X $(p).gitMinor=$(word 2,$(kubernetes_parts)) \
	-X $(p).gitCommit=unknown -X $(p).gitTreeState=clean)
gobuild_server      = $(compiling) go build -trimpath -buildvcs=false -ldflags '$(ldflags) $(kubernetes_flags)'
gotool   := go tool -modfile=tools/go.mod
embedded := internal/node/embedded/slipway-node-linux

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)


.PHONY: quickstart
quickstart: setup build ## a real 3-node cluster on this machine, from nothing
	@hack/quickstart $(KUBERNETES)

.PHONY: quickstart-clean
quickstart-clean: build ## take the quickstart's cluster and machines away again
	@hack/quickstart --clean


.PHONY: quickstart-server
quickstart-server: server ## the management server on this machine, with an example cluster; without root
	@hack/quickstart-server

.PHONY: quickstart-server-clean
quickstart-server-clean: ## stop the quickstart's server and remove its data
	@hack/quickstart-server --clean


.PHONY: setup
setup: ## install what quickstart and test need and this machine lacks
	@hack/setup

.PHONY: node
node: ## the node helper for both architectures, packed for embedding
	@for arch in amd64 arm64; do $(compiling) hack/build-node $$arch $(embedded)-$$arch.gz; done

.PHONY: build
build: node ## bin/slipway, with the node helper inside
	@mkdir -p bin
	@$(gobuild) -o bin/slipway ./cmd/slipway
	@echo "bin/slipway $(VERSION)"

.PHONY: cross
cross: node ## prove that slipway builds for every platform it is meant for
	@for os in linux darwin; do for arch in amd64 arm64; do \
		GOOS=$$os GOARCH=$$arch $(gobuild) -o /dev/null ./cmd/slipway; \
		echo "slipway builds for $$os/$$arch"; \
	done; done

.PHONY: server
server: ## bin/slipwayd, the management server, for this architecture
	@mkdir -p bin
	@$(gobuild_server) -o bin/slipwayd ./cmd/slipwayd
	@echo "bin/slipwayd $(VERSION), Kubernetes $(embedded_kubernetes)"

.PHONY: cross-server
cross-server: ## prove that slipwayd builds for both architectures; each compiles all of Kubernetes' API server
	@for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(gobuild_server) -o /dev/null ./cmd/slipwayd; \
		echo "slipwayd builds for linux/$$arch"; \
	done

.PHONY: bundle
bundle: ## the bundle that the cluster tests install, in the cache
	@bin/slipway bundle build --kubernetes $(KUBERNETES) --source modules


.PHONY: unit
unit: node ## unit tests; as root, on Linux
	@$(compiling) go test -vet=off -timeout 20m ./... # lint vets
	@$(compiling) $(with_api)

# Tests of the core with records in an API server, which they link.
with_api := go test -tags apiserver -vet=off -timeout 20m -parallel 32 -run 'API$$' ./internal/lifecycle

# Libraries that only compute. The race detector slows them down most, and finds no race of ours there.
computing := compress/... crypto/internal/... hash/... math/big regexp/... golang.org/x/crypto/blowfish go.yaml.in/yaml/... \
	sigs.k8s.io/yaml/... github.com/klauspost/compress/...

# The race detector needs cgo. The tags select the resolver and the user database that
# the programs have without cgo. hack/tested-packages says why the server is separate.
racing := CGO_ENABLED=1 go test -race -tags netgo,osusergo -vet=off -ldflags=-w -timeout 45m \
	$(foreach p,$(computing),'-gcflags=$(p)=-race=false')

.PHONY: race
race: node ## unit tests with the race detector, without those of the API server; a sample of slow ones, all with SLIPWAY_RACE_ALL=1
	@packages=$$(hack/tested-packages others) && $(compiling) $(racing) $$packages

.PHONY: race-quick
race-quick: node ## race without the packages of which it runs only a sample
	@packages=$$(hack/tested-packages others | grep -vxF $(foreach p,$(sampled),-e $(p:./%=$(pkg)/%))) && $(compiling) $(racing) $$packages

.PHONY: race-server
race-server: node ## the API server's unit tests with the race detector
	@packages=$$(hack/tested-packages server) && $(compiling) $(racing) $$packages

.PHONY: server-long
server-long: node ## long tests of the API server: two servers on one etcd, a minute of renewals, a minute of journals
	@$(compiling) go test -tags long -vet=off -count=1 -v -timeout 20m -run '^TestRobust(Pair|Renewal)' ./internal/server/controlplane
	@$(compiling) go test -tags long -vet=off -count=1 -v -timeout 20m -run '^TestLoad' ./internal/store/kube

.PHONY: records-long
records-long: node ## 200 killed processes and all faults of a delete, with records in an API; test has a sample of them
	@$(compiling) go test -tags 'apiserver long' -vet=off -count=1 -timeout 40m -parallel 32 -run '^Test(Create_ResumesAfterKilledProcess|Delete_EndsAfterRefusedWrite)API$$' ./internal/lifecycle

.PHONY: unit-sampled
unit-sampled: node ## unit tests that race leaves out, or of which it runs only a sample
	@packages=$$(hack/tested-packages server) && $(compiling) go test -vet=off -timeout 30m $(sampled) $$packages
	@$(compiling) $(with_api)

.PHONY: lint
lint: node ## style, mistakes, formatting, words, sizes, imports, generated code, types on macOS
	@$(compiling) hack/generate --check
	@$(compiling) go test -vet=off ./internal/archtest
	@$(compiling) GOOS=darwin GOARCH=arm64 go build ./internal/cli/...
	@$(compiling) $(gotool) golangci-lint run $(others)

.PHONY: fuzz
fuzz: node ## every fuzz target for FUZZTIME
	@$(compiling) hack/fuzz $(FUZZTIME)

.PHONY: thorough
thorough: ## what test leaves out for its time: platforms, the race detector, fuzzing, lint for the updater, long tests, more real clusters
	@hack/parts cross race fuzz lint-updater server-long records-long e2e-apart

.PHONY: lint-updater
lint-updater: ## lint for the updater, whose client library takes minutes
	@$(compiling) $(gotool) golangci-lint run $(updater)

.PHONY: e2e-apart
e2e-apart: ## tests on real clusters that test leaves out
	@$(MAKE) e2e RUN='$(apart)'

.PHONY: generate
generate: ## the code that is made from the API types
	@hack/generate

.PHONY: fmt
fmt: ## format the code as lint wants it
	@$(gotool) golangci-lint fmt ./...

.PHONY: vuln
vuln: ## known vulnerabilities in what we link; needs the internet (vuln.go.dev)
	@$(gotool) govulncheck ./cmd/...

.PHONY: e2e
e2e: server ## tests on real clusters in sandbox machines; RUN=regexp for some of them
	@go test -tags e2e -count=1 -v -timeout 60m $(if $(RUN),-run '$(value RUN)',-skip '$(apart)') ./test/e2e

.PHONY: test
test: ## everything: set-up, unit, lint, both quickstarts, e2e; prints what each part took
	@hack/test

.PHONY: ci
ci: ## test, each check once, with the race detector and other parts of thorough
	@hack/test --ci

.PHONY: test-long
test-long: setup build server bundle ## long scenarios, one by SCENARIO=name, COUNT=N times; results go to docs/test-long.md
	@COUNT=$(COUNT) hack/test-long $(SCENARIO)

.PHONY: bench
bench: setup build bundle ## Slipway next to a plain kubeadm script; N=5 rounds, SHAPES=1+2,3+2
	@go run ./test/bench -n $(or $(N),5) -kubernetes $(KUBERNETES) $(if $(SHAPES),-shapes $(SHAPES))

.PHONY: bench-hosts
bench-hosts: setup build server ## one manager with 10 to 1,000 hosts, records in files and in an API, and Ansible; HOSTS=10,100 for others
	@$(gobuild) -o bin/bench-manager ./test/bench/hosts/manager
	@go run ./test/bench/hosts $(if $(HOSTS),-sizes $(HOSTS)) $(BENCH_HOSTS)

.PHONY: bench-content
bench-content: ## what the manager uploads to 2, 10 and 50 hosts, with and without host to host
	@go test -count=1 -run '^$$' -bench '^BenchmarkContent$$' -benchtime 1x -timeout 20m ./internal/node/helper

.PHONY: clean
clean: ## remove what build made; state and caches stay
	@rm -rf bin $(embedded)-*.gz
