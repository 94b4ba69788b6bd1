# What a developer calls. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help deps tools demo check purity test

CARGO := cargo
# Cargo's own progress is shown; the tests' output only where something fails.
TEST := $(CARGO) test --quiet

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST)

deps: ## Check the toolchains, install redis-server and a linker when missing
	@hack/install-deps.sh

tools: deps ## Build etcd, the Kubernetes control plane and kwok when missing
	@hack/build-tools.sh

demo: tools ## The whole story on this machine; KEEP=1 leaves it up to play with
	@echo "==> building the operator and the demo"
	@$(CARGO) build --bin redislease
	@$(CARGO) build --package redislease-lab --example demo
	@KEEP="$(KEEP)" target/debug/examples/demo target/debug/redislease

check: ## Format, lints, unit tests, model, simulator, purity: no server, for every save
	@echo "==> format"
	@$(CARGO) fmt --all --check
	@echo "==> clippy"
	@$(CARGO) clippy --workspace --all-targets --quiet -- --deny warnings
	@$(MAKE) --no-print-directory purity
	@echo "==> unit tests"
	@$(TEST) --lib
	@echo "==> core: unit tests, simulator, model"
	@$(TEST) --package redislease-core

purity: ## The pure rooms build without any IO dependency
	@echo "==> purity"
	@hack/purity.sh

test: tools check ## Every test: check, then Redis servers, control plane and all
	@echo "==> lab: the starters themselves"
	@$(TEST) --package redislease-lab
	@echo "==> redis: real servers"
	@$(TEST) --test redis
	@echo "==> kube: a real control plane"
	@$(TEST) --test kube
	@echo "==> all tests passed"
