"""The envs service."""
