"""The cache service: experience and weights over Redis."""
