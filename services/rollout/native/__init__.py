"""The native engine: continuous batching over the learner's own policy code."""
