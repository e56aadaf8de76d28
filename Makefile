# One command checks, one command tests; CI calls the same two (.ci/run).
#
# Recipes are thin: what needs thought lies in dev/, in Python of the standard
# library, run by the system's python3 until `setup` has made the real one.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

RLFLEET_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rlfleet
export RLFLEET_CACHE
PY := PYTHONPATH=operator:sidecar:client:plugin:. $(RLFLEET_CACHE)/venv/current/bin/python
DEV := python3 -m dev.

.PHONY: help
help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  RLFLEET_CACHE=DIR  where slow things are kept; now $(RLFLEET_CACHE)'
	@echo '  CLUSTER=existing   use the cluster of the current kubeconfig, not one of our own'
	@echo '  IMAGE_PREFIX=NAME  with CLUSTER=existing: the registry and folder of the images; without it'
	@echo '                     kind and minikube load them'

.PHONY: setup
setup: ## Make the Python environment
	@$(DEV)python.venv

.PHONY: fmt
fmt: setup ## Format, and fix what can be fixed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: check
check: setup ## Lint, types, import layers, generated files, prose, chart
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	PYTHONPATH=operator:sidecar:client:plugin:. $(RLFLEET_CACHE)/venv/current/bin/lint-imports
	$(PY) -m dev.generated --check
	$(PY) -m dev.style
	$(DEV)tool helm lint charts/rlfleet --strict --set image.repository=operator --set worker.image=worker

.PHONY: generate
generate: setup ## Write the generated files: CRD, reference, diagrams
	$(PY) -m dev.generated

.PHONY: quick
quick: ## Run the tests that need no Kubernetes
	@$(DEV)suite quick

.PHONY: test-integration
test-integration: ## Run the tests against a real API server
	@$(DEV)suite integration

.PHONY: test-tools
test-tools: ## Run Argo CD, Flux, KEDA, cert-manager on a fleet (compiles them: 25 minutes)
	@$(DEV)suite tools

.PHONY: test-e2e
test-e2e: ## Run the tests with real vLLM in a real cluster
	@$(DEV)suite e2e

.PHONY: test
test: ## Run all tests; starts what they need and ends what it started
	@$(DEV)suite quick integration faults e2e

.PHONY: cluster
cluster: ## Start the one-node cluster (root, Linux)
	@$(DEV)node up

.PHONY: cluster-down
cluster-down: ## End it; images stay in the cache
	@$(DEV)node down

.PHONY: cluster-status
cluster-status: ## Show what runs in it
	@$(DEV)node status

.PHONY: images
images: ## Build the operator's and the worker's image, bring them into the cluster (VLLM=0.31.0)
	@$(DEV)images

.PHONY: docs
docs: setup ## Make the pages into a site with search: build/docs/index.html
	@$(PY) -m dev.docs.site

.PHONY: plugin
plugin: setup ## Make the kubectl plugin: build/kubectl-rlf, and krew's manifest (PLUGIN_URI=…)
	@$(PY) -m dev.plugin

.PHONY: release
release: setup ## Make a release in build/release: wheel, plugin, chart, images, signed (ARGS=--no-images)
	@$(PY) -m dev.release $(ARGS)

.PHONY: release-check
release-check: setup ## Make it twice and compare every byte (half an hour with images)
	@$(PY) -m dev.release --check $(ARGS)

.PHONY: demo
demo: setup ## Show a weight change on a fleet, from nothing
	@$(PY) -m dev.demo up

.PHONY: demo-down
demo-down: setup ## Leave nothing of the demo behind
	@$(PY) -m dev.demo down

.PHONY: tour
tour: setup ## Take the tour of docs/tour.md on the cluster, and write down what is seen (OLD=COMMIT)
	@$(PY) -m dev.tour $(OLD)

.PHONY: follow-demo
follow-demo: setup ## Have a fleet follow a trainer's deltas, and compare each reply (STEPS=100 EVERY=20)
	@$(PY) -m tests.e2e.following $(if $(STEPS),--steps $(STEPS)) $(if $(EVERY),--every $(EVERY))

.PHONY: network-policies
network-policies: setup ## Show on the cluster which pod reaches what, with the chart's NetworkPolicies
	@$(PY) -m tests.e2e.network_policies

.PHONY: bench
bench: setup ## Measure
	@$(PY) -m bench

.PHONY: faults
faults: setup ## Strike every request of operator and sidecars with every kind of fault
	@$(PY) -m faults

.PHONY: test-faults
test-faults: ## Strike sixty requests, the same ones each time
	@$(DEV)suite faults

.PHONY: replay
replay: setup ## Run one plan again: make replay PLAN=faults/failed/NAME.yaml
	@$(PY) -m faults run $(PLAN)

.PHONY: campaign
campaign: setup ## Kill something in each of 50 rollouts on the cluster (ARGS="--seed 1 --rollouts 50")
	@$(PY) -m tests.e2e.campaign $(ARGS)

.PHONY: skew
skew: setup ## Have operator and workers of two releases work together (OLD=v0.1.0, a tag or commit)
	@$(PY) -m tests.e2e.skew $(OLD) $(ARGS)

.PHONY: zoo
zoo: setup ## Change weights of tiny models of many architectures on real vLLM (MODELS="--like-gpu llama …")
	@$(PY) -m dev.zoo $(MODELS)

.PHONY: matrix
matrix: setup ## Run the suites on each release of vLLM (VLLM="0.30.0 0.31.0", SUITE=contract)
	@$(PY) -m dev.releases.matrix $(VLLM) $(if $(SUITE),--suite $(SUITE))

.PHONY: modelcheck
modelcheck: setup ## Search every order of events and faults, in bounds (20 minutes)
	@$(PY) -m tests.model full

.PHONY: mutants
mutants: setup ## See that the tests catch small defects (tests/mutants)
	@$(PY) -m tests.mutants --write

.PHONY: lock
lock: ## Resolve the lock files anew
	@$(DEV)python.lock

.PHONY: clean-cache
clean-cache: ## Delete everything that is kept
	@$(DEV)clean
