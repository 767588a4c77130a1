"""Image builds, and digests in overlays."""
