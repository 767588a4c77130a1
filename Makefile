# One vocabulary: train test lint format protos images deploy-check bench
VENV ?= .venv
PY := $(VENV)/bin/python
CONFIG ?= examples/quickstart.toml
TORCH ?= torch==2.13.0

.PHONY: train test lint format protos protos-check images deploy-check bench clean

# Sets itself up, then trains the tiny MoE policy end to end on this machine.
train: $(VENV)/.ready
	$(VENV)/bin/moera train $(CONFIG)

test: $(VENV)/.ready
	$(PY) -m pytest

$(VENV)/.ready: pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	# The CPU build of torch first: an unpinned torch would pull gigabytes of CUDA.
	$(PY) -m pip install --quiet $(TORCH)
	$(PY) -m pip install --quiet --editable ".[dev]"
	touch $@

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	# Without a path pyright would look for the packages in the system's Python.
	$(VENV)/bin/pyright --pythonpath $(PY)
	$(VENV)/bin/lint-imports
	$(VENV)/bin/buf lint
	$(VENV)/bin/buf format --diff --exit-code

format: $(VENV)/.ready
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/buf format --write

protos: $(VENV)/.ready
	$(PY) -m grpc_tools.protoc -I protos --python_out=. --pyi_out=. --grpc_python_out=. protos/moera/v1/*.proto
	rm -f moera/v1/common_pb2_grpc.py

# The checked-in stubs are what the protos generate, and since the last tag nothing broke.
LAST_TAG := $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
protos-check: protos
	$(if $(LAST_TAG),$(VENV)/bin/buf breaking --against '.git#tag=$(LAST_TAG)')
	git diff --exit-code -- moera/v1
	test -z "$$(git status --porcelain -- moera/v1)"

REGISTRY ?=
OVERLAY ?= deploy/k8s/overlays/eks
CRDS ?=

# Builds and pushes the service images; their digests go into OVERLAY.
images: $(VENV)/.ready
	@test -n "$(REGISTRY)" || { echo "usage: make images REGISTRY=host/prefix [OVERLAY=folder]"; exit 2; }
	PYTHON=$(abspath $(PY)) deploy/images/build.sh $(REGISTRY) $(OVERLAY)

# Speed of parts, each with the machine it ran on; `python -m bench.quickstart` takes minutes.
bench: $(VENV)/.ready
	$(PY) -m bench.rollout

# Renders every overlay and checks it; CRDS=folder validates custom kinds too.
deploy-check: $(VENV)/.ready
	$(PY) -m deploy.check $(if $(CRDS),--crds $(CRDS))
