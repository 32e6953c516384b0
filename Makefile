# "make help" lists the targets. Everything runs on Debian 12 with root, Go,
# make and git; what else is needed is installed by the targets that need it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The storage and image libraries are built without btrfs and without gpgme, so
# that no further C library is needed. The other flags are those of the local
# cluster (test/cluster/compile), so that what they share is compiled once.
TAGS := netgo,osusergo,exclude_graphdriver_btrfs,containers_image_openpgp
export GOFLAGS := -buildvcs=false -trimpath -tags=$(TAGS)

# Everything is compiled without cgo, as Kubernetes is. Only the builder needs
# cgo: it enters namespaces from C.
export CGO_ENABLED := 0
CGO_PACKAGES := ./builder ./cmd/imagemode-builder

GO ?= go
GO_DIR := /usr/local/go/bin
ifeq ($(shell command -v $(GO)),)
  ifneq ($(filter-out help,$(MAKECMDGOALS)),)
    ifneq ($(wildcard $(GO_DIR)/go),)
      $(error go is not in PATH, but in $(GO_DIR): run "export PATH=$$PATH:$(GO_DIR)" and try again)
    else
      $(error go is not in PATH: install Go 1.26 or later from https://go.dev/dl/ and try again)
    endif
  endif
endif

# Binaries of the local cluster are kept outside the checkout.
IMAGEMODE_CACHE ?= $(HOME)/.cache/imagemode
export IMAGEMODE_CACHE
export KUBEBUILDER_ASSETS ?= $(IMAGEMODE_CACHE)/bin

# The cluster command is a module of its own. Its packages that link all of
# Kubernetes and of containerd have no tests, and are compiled by the command itself.
CLUSTER_GO := cd test/cluster && $(GO)
CLUSTER := $(CLUSTER_GO) run .
CLUSTER_PACKAGES := $$($(GO) list ./... | grep -vE "/(kubernetes|containerd)$$")

##@ Try it

.PHONY: demo
demo: openshift-crds packages ## Start the local cluster and show a build and a rollout (10 to 20 minutes the first time)
	$(GO) run ./test/e2e/demo

.PHONY: demo-down
demo-down: cluster-down ## Remove everything that the demo started

##@ Test

.PHONY: test
test: verify lint unit envtest e2e ## Everything below: what a change has to pass

.PHONY: verify
verify: packages ## Check formatting and that generated files are up to date
	@tools/verify-format
	@tools/verify-generated

# The linter is compiled from its Go module, which takes some minutes once.
LINTER := $(IMAGEMODE_CACHE)/bin/golangci-lint

.PHONY: lint
lint: packages ## Check the code for common mistakes, and the import rules
	cd tools/golangci && $(GO) build -o $(LINTER) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(LINTER) run ./...
	$(CLUSTER_GO) vet $(CLUSTER_PACKAGES)

.PHONY: unit
unit: packages ## Unit tests, of the import rules too
	$(GO) test $$($(GO) list ./... | grep -vxF -f <(CGO_ENABLED=1 $(GO) list $(CGO_PACKAGES)))
	CGO_ENABLED=1 $(GO) test $(CGO_PACKAGES)
	$(CLUSTER_GO) test $(CLUSTER_PACKAGES)

SOAK_CASES ?= 2000

.PHONY: soak
soak: packages ## Models with many new samples (SOAK_CASES, SOAK_SEED), and all crashes of builds
	$(GO) test -count=1 -v -timeout=60m -run TestCrashes ./controllers/machineosbuild -args -crashes.all
	$(GO) test -count=1 -v -timeout=60m -run Model ./rollout/agent ./rollout/controller \
	  -args -rapid.checks=$(SOAK_CASES) -rapid.seed=$(or $(SOAK_SEED),$$RANDOM) -rapid.nofailfile

# The packages that have tests for a real API server, found by their build tag.
ENVTEST_PACKAGES = $(shell grep -rl --include='*_test.go' '^//go:build.*envtest' . | xargs -r dirname | sort -u)

# The detector ends a test whose controllers change an object of their cache.
.PHONY: envtest
envtest: openshift-crds packages binaries ## Tests against a real API server
	KUBE_CACHE_MUTATION_DETECTOR=true $(GO) test -tags=$(TAGS),envtest -count=1 $(ENVTEST_PACKAGES)

.PHONY: e2e
e2e: openshift-crds packages ## Builds, rollouts, streams and failures on the local cluster
	TAGS=$(TAGS) test/e2e/run

.PHONY: dnf5
dnf5: packages ## Installs extensions with dnf5, which only Debian's unstable suite has
	@tools/install-packages mmdebstrap
	$(GO) test -tags=$(TAGS),e2e -count=1 -v -timeout=20m -run RPM ./containerfiles -args -rpm.manager=dnf5 -rpm.suite=sid

##@ Measure

BENCH_IDLE ?= 10m

.PHONY: bench-controllers
bench-controllers: openshift-crds packages binaries ## 200 pools on a real API server: convergence, edits, idle writes, memory (BENCH_IDLE)
	$(GO) test -tags=$(TAGS),envtest -count=1 -timeout=60m -run=^$$ -bench=Controllers -benchtime=1x ./controllers/machineosbuild -args -bench.idle=$(BENCH_IDLE)

BENCH_POOLS ?= 500
BENCH_NODES ?= 5000

.PHONY: bench-pools
bench-pools: openshift-crds packages binaries ## 500 pools, 5,000 nodes on a real API server: one edit that all render (BENCH_POOLS, BENCH_NODES), and what an update of a node writes
	$(GO) test -tags=$(TAGS),envtest -count=1 -timeout=60m -v -run=Writes -bench=Pools -benchtime=1x ./test/scale -args -bench.pools=$(BENCH_POOLS) -bench.nodes=$(BENCH_NODES)

.PHONY: bench-builder
bench-builder: build ## The builder against buildah on this machine, medians of five (about 20 minutes, 40 GB of disk)
	@tools/install-packages buildah
	$(GO) build -o bin/bench-tool ./test/bench/builder/tool
	$(CLUSTER_GO) build -o $(CURDIR)/bin/bench-registry ./registryserver
	$(GO) run ./test/bench/builder -registry bin/bench-registry -tool bin/bench-tool

.PHONY: bench-cluster
bench-cluster: openshift-crds packages ## On the local cluster: from a MachineConfig to its image, against buildah in a pod (about 5 minutes, 10 GB of disk)
	$(GO) build -o bin/bench-tool ./test/bench/builder/tool
	cp go.mod bin/bench-buildah.mod && cp go.sum bin/bench-buildah.sum # its program wants a module more than its library
	CGO_ENABLED=1 $(GO) build -mod=mod -modfile=bin/bench-buildah.mod -ldflags '-extldflags "-static"' -o bin/bench-buildah go.podman.io/buildah/cmd/buildah
	$(CLUSTER) status >/dev/null || { echo 'the local cluster is not up: run "make cluster-up"' >&2; exit 1; }
	$(CLUSTER) images
	$(GO) run ./test/bench/cluster

.PHONY: bench-rollout
bench-rollout: packages ## Time out of service, staged first and pulled after the drain, on the local cluster (make cluster-up)
	$(CLUSTER) images
	$(GO) run ./test/bench/rollout

SCALE_NODES ?= 5000
SCALE_REBOOT ?= 2m

.PHONY: bench-rollout-scale
bench-rollout-scale: openshift-crds packages binaries ## A rollout to 5000 simulated nodes: memory, waits, writes (SCALE_NODES, SCALE_REBOOT; about 20 minutes)
	$(GO) test -tags=$(TAGS),envtest -count=1 -timeout=60m -v -run=^$$ -bench=Scale -benchtime=1x ./rollout/agent -args -scale.nodes=$(SCALE_NODES) -scale.reboot=$(SCALE_REBOOT)

##@ Build

.PHONY: build
build: packages ## Compile the programs to bin/
	$(GO) build -o bin/ ./cmd/imagemode-controller ./cmd/imagemode-agent
	CGO_ENABLED=1 $(GO) build -ldflags '-extldflags "-static"' -o bin/ ./cmd/imagemode-builder

# Its build tags replace those in GOFLAGS.
CONTROLLER_GEN := $(GO) tool -modfile=tools/go.mod controller-gen --load-build-tags=ignore_autogenerated,$(TAGS)

.PHONY: generate
generate: openshift-crds packages ## Generate deep copies, CRDs and RBAC from the code
	$(CONTROLLER_GEN) object crd paths=./api/v1alpha1 output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=imagemode-controller,fileName=controller_role.yaml \
	  paths=./controllers/... paths=./rollout/controller/... paths=./cmd/imagemode-controller/... \
	  output:rbac:dir=config/rbac
	$(CONTROLLER_GEN) rbac:roleName=imagemode-agent,fileName=agent_role.yaml \
	  paths=./rollout/agent/... paths=./cmd/imagemode-agent/... output:rbac:dir=config/rbac

# The CRDs of the kinds that imagemode keeps come out of the pinned module and
# are not committed. Of several variants, the one with the most fields.
OPENSHIFT_CRDS := machineconfigs machineosconfigs machineosbuilds \
  machineconfigpools-SelfManagedHA osimagestreams-SelfManagedHA \
  machineconfignodes-SelfManagedHA-CustomNoUpgrade

.PHONY: openshift-crds
openshift-crds:
	@mkdir -p config/crd/openshift
	@$(GO) mod download github.com/openshift/api
	@crds=$$($(GO) list -m -f '{{.Dir}}' github.com/openshift/api)/machineconfiguration/v1/zz_generated.crd-manifests; \
	for crd in $(OPENSHIFT_CRDS); do \
	  install -m 0644 $$crds/0000_80_machine-config_01_$$crd.crd.yaml config/crd/openshift/$${crd%%-*}.yaml || exit 1; \
	done

# The storage library, and so the builder, is compiled with cgo.
.PHONY: packages
packages:
	@tools/install-packages gcc libc6-dev

##@ Local cluster

.PHONY: cluster-up
cluster-up: ## Start the local cluster: control plane, registry, two worker machines
	$(CLUSTER) up

.PHONY: cluster-status
cluster-status: ## Show what of the local cluster runs
	$(CLUSTER) status

.PHONY: exec
exec: ## Run a command on a worker machine (NODE, COMMAND): make exec COMMAND="bootc status"
	@$(CLUSTER) exec $(NODE) -- $(COMMAND)
exec: NODE ?= worker-1
exec: COMMAND ?= bootc status

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove its state
	$(CLUSTER) down

.PHONY: binaries
binaries: ## Compile the programs of the local cluster into the cache
	$(CLUSTER) binaries

##@ Other

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
