"""Checks of the rendered manifests: `python -m deploy.check [--crds FOLDER]`."""
