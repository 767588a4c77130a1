"""Manifests, images and cluster of a moera deployment, and the checks over them."""
