# Two commands matter: `make demo` (the main job, for real) and `make test` (what CI runs).
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
CLUSTER ?= local

.PHONY: help
help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo demo-clean
demo: venv ## The main job for real: cluster, operator, vLLM + LMCache pod, cached hits (CLUSTER=existing: current kubeconfig context)
	@$(PY) -m demo --cluster $(CLUSTER)
demo-clean: venv ## Take down what the demo started
	@$(PY) -m demo --cluster $(CLUSTER) --clean

.PHONY: test test-unit test-cluster test-node test-engine
test: venv ## Everything CI runs: lint, types and the four tiers; builds run beside the first ones
	@$(PY) -m tools.tiers all
test-unit: venv ## Rules: unit, property and golden tests (Python only)
	@$(PY) -m tools.tiers unit
test-cluster: venv ## The operator on a real API server, controller-manager and scheduler (Go)
	@$(PY) -m tools.tiers cluster
test-node: venv ## The pod on a real kubelet and containerd, the operator in its image (root)
	@$(PY) -m tools.tiers node
test-engine: venv ## Real vLLM and lmcache server, on the host and on the node (root)
	@$(PY) -m tools.tiers engine

.PHONY: lint format
lint: venv ## ruff, mypy --strict, import layers
	@$(PY) -m tools.tiers lint
format: venv ## Format the Python code
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

.PHONY: crds images localkube bench
crds: venv ## Regenerate crds/ from the pydantic models
	@PYTHONPATH=operator/src $(PY) -m qwen_cached_serve.api.crd > crds/qwencache.dev_qwencachedserves.yaml
images: venv ## Build the images (skipped when up to date)
	@$(PY) -m images.build
localkube: venv ## Build the local Kubernetes binaries (skipped when up to date)
	@$(PY) -m localkube build
bench: venv ## Benchmarks: many resources on simulated nodes, idle cost, start-up split
	@$(PY) -m benchmarks

.PHONY: venv lock clean
venv:
	@tools/bootstrap.sh
lock: ## Re-pin the hashed requirement files
	@.venv/bin/uv pip compile -q --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal pyproject.toml -o requirements/runtime.txt
	@.venv/bin/uv pip compile -q --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal pyproject.toml --group dev -o requirements/dev.txt
clean: ## Remove build outputs of this clone (caches under ~/.cache stay)
	@rm -rf build .venv
