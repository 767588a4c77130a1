#!/usr/bin/env bash
# Build and push the four images and write their digests into an overlay.
# usage: build.sh REGISTRY OVERLAY
set -euo pipefail
registry=$1
overlay=$2
python=${PYTHON:-python3}
cd "$(dirname "$0")/../.."

tag=$(git rev-parse --short=12 HEAD)
git diff --quiet HEAD || tag="${tag}-dirty"
pins=()
for service in cache envs learner rollout; do
  repository=$registry/moera/$service
  metadata=$(mktemp)
  docker buildx build --platform linux/amd64 --file "deploy/images/$service.Dockerfile" \
    --tag "$repository:$tag" --metadata-file "$metadata" --push .
  digest=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["containerimage.digest"])' "$metadata")
  rm "$metadata"
  pins+=("moera/$service=$repository@$digest")
done
"$python" -m deploy.images.pin "$overlay" "${pins[@]}"
