"""The cache service."""
