# What a developer calls. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help deps tools demo check test model figures
# The steps of a goal build on each other; cargo and go use all cores by themselves.
.NOTPARALLEL:

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST)

deps: ## Check the toolchains, install redis-server and a linker when missing
	@hack/install-deps.sh

tools: deps ## Build etcd, the Kubernetes control plane and kwok when missing
	@hack/build-tools.sh

demo: tools ## Tell the story of a lease on real servers; KEEP=1 leaves it up
	@hack/run-example.sh demo

check: ## The fast loop: format, lints, purity, unit tests, model and simulator; no server
	@hack/install-deps.sh rust
	@hack/run-tests.sh fast

test: deps tools ## All checks and tests, on real Redis servers and a real control plane too
	@hack/run-tests.sh all

model: ## Search every world of the model, also the large ones that make test leaves out; minutes
	@hack/install-deps.sh rust
	@MODEL=all cargo test --locked --package redislease-core --test model -- --nocapture

figures: tools ## Measure handovers and API writes on this machine; six minutes
	@hack/run-example.sh figures
