# `make demo` shows berth at work, `make test` runs all tests; both first install
# what is missing. `make help` lists the rest.

SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PREFIX ?= /usr/local
BIN := $(CURDIR)/bin

# Only berth-shim uses cgo: libcontainer needs it. It is linked statically.
SHIM_TAGS := seccomp netgo osusergo
SHIM_LDFLAGS := -s -w -extldflags -static
LDFLAGS := -s -w -X github.com/berth-run/berth/internal/version.version=$(VERSION)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install the system packages that are missing (Debian, Ubuntu)
	@hack/install-deps.sh

.PHONY: build
build: deps ## build bin/berth, bin/berth-shim and bin/berth-demo
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth ./cmd/berth
	CGO_ENABLED=1 $(GO) build -trimpath -tags '$(SHIM_TAGS)' -ldflags '$(SHIM_LDFLAGS)' -o $(BIN)/berth-shim ./cmd/berth-shim
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/berth-demo ./cmd/berth-demo

.PHONY: demo
demo: build ## run examples/hello.yaml until Ready, ask it over HTTP, stop it
	@hack/demo.sh

.PHONY: test
test: build vet ## run every test: unit, race, real containers
	@hack/test.sh

.PHONY: test-vm
test-vm: ## run tests on cgroup v2 in a virtual machine (VM_TESTS="smoke clock cgroup")
	@test/vm/run.sh

.PHONY: vet
vet:
	$(GO) vet ./...
	$(GO) vet -tags '$(SHIM_TAGS)' ./cmd/berth-shim ./internal/shim/...

.PHONY: lint
lint: ## run golangci-lint, pinned in tools/go.mod
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

.PHONY: fmt
fmt: ## format the code
	$(GO) tool -modfile=tools/go.mod golangci-lint fmt ./...

.PHONY: generate
generate: ## write generated files anew
	$(GO) generate ./...

.PHONY: bench
bench: build ## measure, with the peers beside (BENCH_FLAGS=--no-peers leaves them out)
	@test/bench/run.sh $(BENCH_FLAGS)

.PHONY: install
install: build ## install to PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 0755 $(BIN)/berth $(BIN)/berth-shim $(BIN)/berth-demo $(DESTDIR)$(PREFIX)/bin/

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)
