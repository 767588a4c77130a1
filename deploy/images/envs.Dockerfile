# syntax=docker/dockerfile:1.9
# Environments: no torch. Base of an image of your own, see docs/deploy-eks.md.
ARG PYTHON=docker.io/library/python:3.12-slim-bookworm

FROM ${PYTHON} AS build
RUN python -m venv /opt/moera
ENV PATH=/opt/moera/bin:$PATH
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip install ".[envs]"

FROM ${PYTHON}
RUN groupadd --gid 10001 moera \
    && useradd --uid 10001 --gid moera --no-create-home --home-dir /tmp moera
COPY --from=build /opt/moera /opt/moera
ENV PATH=/opt/moera/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 7102
ENTRYPOINT ["python", "-P", "-m", "services.envs"]
