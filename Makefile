# What a developer calls. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help deps tools

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST)

deps: ## Check the toolchains, install redis-server and a linker when missing
	@hack/install-deps.sh

tools: deps ## Build etcd, the Kubernetes control plane and kwok when missing
	@hack/build-tools.sh
