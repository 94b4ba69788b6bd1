# What developers run. `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help deps tools lab-tools demo e2e check test nightly mutants model scale lock-scale observe dashboard chart docs licences image bench run-idle run-losses
# The prerequisites of a target depend on each other; cargo and go use all cores by themselves.
.NOTPARALLEL:

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST)

deps: ## Check the toolchains, install redis-server and a linker when missing
	@hack/install-deps.sh

tools: deps ## Build etcd, the Kubernetes control plane, Helm and an S3 server when missing
	@hack/build-tools.sh

lab-tools:
	@hack/install-deps.sh lab
	@hack/build-tools.sh lab

demo: lab-tools ## Show the life of a lease on real servers; KEEP=1 keeps the servers running
	@hack/run-example.sh demo

e2e: ## Install image and chart on two real nodes with real pods, and let parts fail; needs root (3 minutes; the first time 15 to 25)
	@hack/install-deps.sh node
	@hack/e2e.sh

check: ## Run what needs no server: format, lints, purity, unit tests, model and simulator
	@hack/install-deps.sh rust
	@hack/run-tests.sh fast

test: deps tools ## Run all checks and tests, also those on real Redis servers and a real control plane
	@hack/run-tests.sh all

nightly: deps tools ## Run what is too long for a commit, 6 hours; PARTS selects parts, SIM_HOURS, ROUNDS, LOSSES and N their sizes
	@hack/nightly.sh $(PARTS)

mutants: deps ## Change the code in small ways and report what no test notices; PARTS selects parts, MUTANTS_MINUTES limits each (hours)
	@hack/mutants.sh $(PARTS)

model: ## Search every world of the two models, also the large ones that make test leaves out (minutes)
	@hack/install-deps.sh rust
	@MODEL=all cargo test --locked --package redislease-core --test model -- --nocapture
	@MODEL=all cargo test --locked --package redislease-sim --test activation -- --nocapture

scale: lab-tools ## Measure N leases (1000) on a real control plane; PHASES=start,hold selects parts, KEEP=1 keeps it running
	@hack/run-example.sh scale --release

lock-scale: deps ## Measure and plot NUMBERS of leases (100 1000 10000 100000) on the lock layer, without Kubernetes (3 to 6 minutes each)
	@hack/lock-scale.sh $(NUMBERS)

run-idle: deps ## Measure the memory and the processor time of an idle `redislease run`; fails above the limits (2 minutes)
	@cargo test --locked --release --package redislease-run --test run idle -- --ignored --nocapture

run-losses: deps ## Lose the lock of `redislease run` 200 times in each of 26 ways, and measure how late the command is killed (15 minutes)
	@REDISLEASE_TEST_LOSSES=$(or $(LOSSES),200) cargo test --locked --release --package redislease-run --test run losses -- --nocapture

bench-systems: deps lab-tools ## Compare with the leader elections of client-go and etcd on a real control plane (15 minutes)
	@hack/bench-systems.sh

bench: deps ## Compare with other lock libraries on the same Redis servers (33 minutes; QUICK=1: 8 minutes)
	@bench/run.py

observe: deps lab-tools ## Evaluate every query of dashboard and alerts on a real Prometheus, during faults; draw the panels (4 minutes)
	@hack/run-example.sh observe
	@if hack/dashboard-pictures.sh possible; then hack/dashboard-pictures.sh; fi

dashboard: ## Generate the Grafana dashboard of the chart
	@hack/dashboard.sh

chart: tools ## Generate the chart's CRD templates and its README
	@hack/generate-chart.sh

docs: ## Generate the pages of docs/ that have another source: API, conditions, flags, and two of the library's guide
	@UPDATE_DOCS=1 cargo test --quiet --locked --package redislease --lib docs::
	@echo "generated: docs/api.md, docs/conditions.md, docs/flags.md, docs/coming-from.md, docs/fencing.md"

licences: ## Check licences and sources of the dependencies; write SBOM and licence texts to target/licences (builds cargo-deny once)
	@hack/install-deps.sh rust
	@hack/licences.sh install
	@hack/licences.sh

image: ## Build the image from a static binary; ARCH=arm64 selects the architecture, TWICE=1 shows that the binary is reproducible
	@hack/install-deps.sh image $(ARCH)
	@hack/image.sh $(if $(ARCH),--arch $(ARCH)) $(if $(TWICE),--twice yes)
