# "make help" lists the targets. Everything runs on Debian 12 with root, Go,
# make and git; what else is needed is installed by the targets that need it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The storage and image libraries are built without btrfs and without gpgme, so
# that no further C library is needed.
TAGS := exclude_graphdriver_btrfs,containers_image_openpgp
export GOFLAGS := -buildvcs=false -tags=$(TAGS)

GO ?= go
GO_DIR := /usr/local/go/bin
ifeq ($(shell command -v $(GO)),)
  ifneq ($(MAKECMDGOALS),help)
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

# The cluster command is a module of its own, without the tags above.
CLUSTER := cd test/cluster && GOFLAGS=-buildvcs=false $(GO) run .

##@ Try it

.PHONY: demo
demo: generate ## Start the local cluster and show a build and a rollout (about 20 minutes the first time)
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

.PHONY: lint
lint: packages ## Check the code for common mistakes
	$(GO) vet -tags=$(TAGS),envtest,e2e ./...

.PHONY: unit
unit: packages ## Unit tests, of the import rules too
	$(GO) test ./...
	cd test/cluster && GOFLAGS=-buildvcs=false $(GO) test $$($(GO) list ./... | grep -v /kubernetes$$)

# The packages that have tests for a real API server, found by their build tag.
ENVTEST_PACKAGES = $(shell grep -rl --include='*_test.go' '^//go:build.*envtest' . | xargs -r dirname | sort -u)

.PHONY: envtest
envtest: generate packages binaries ## Tests against a real API server
	$(GO) test -tags=$(TAGS),envtest -count=1 $(ENVTEST_PACKAGES)

.PHONY: e2e
e2e: generate packages ## One build and rollout on the local cluster
	test/e2e/run

##@ Build

.PHONY: build
build: packages ## Compile the programs to bin/
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/imagemode-controller ./cmd/imagemode-agent
	$(GO) build -o bin/ ./cmd/imagemode-builder

CONTROLLER_GEN := $(GO) tool -modfile=tools/go.mod controller-gen

.PHONY: generate
generate: openshift-crds ## Generate deep copies, CRDs and RBAC from the code
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

.PHONY: packages
packages:
	@tools/install-packages gcc libc6-dev libseccomp-dev pkg-config

##@ Local cluster

.PHONY: cluster-up
cluster-up: ## Start the local cluster: control plane, registry, two worker machines
	$(CLUSTER) up

.PHONY: cluster-status
cluster-status: ## Show what of the local cluster runs
	$(CLUSTER) status

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
