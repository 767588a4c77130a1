# syntax=docker/dockerfile:1.9
# Learner on one node. The libraries of EFA (libfabric, aws-ofi-nccl >= 1.21) are not in it: one
# node needs NVLink only; add them here when the learner spans nodes.
ARG PYTHON=docker.io/library/python:3.12-slim-bookworm

FROM ${PYTHON} AS build
# PyPI's torch is the CUDA build; `--build-arg TORCH_INDEX=<index of CPU wheels>` makes the
# image of a laptop's cluster.
ARG TORCH="torch>=2.12"
ARG TORCH_INDEX=https://pypi.org/simple
RUN python -m venv /opt/moera
ENV PATH=/opt/moera/bin:$PATH
RUN --mount=type=cache,target=/root/.cache/pip pip install --index-url "${TORCH_INDEX}" "${TORCH}"
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip install ".[learner]"

FROM ${PYTHON}
# Triton compiles its launchers with the system's C compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 moera \
    && useradd --uid 10001 --gid moera --no-create-home --home-dir /tmp moera
COPY --from=build /opt/moera /opt/moera
ENV PATH=/opt/moera/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /tmp
EXPOSE 7103
ENTRYPOINT ["python", "-P", "-m", "services.learner"]
