"""How weights travel: codec, encoder, manifests, and publishing and pulling over gRPC.

A version is a manifest (header and slices) over content-addressed, immutable chunks. Numpy only.
"""
