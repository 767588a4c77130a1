"""Policies: loading, experts dispatch, routing, logprobs. The only part of moera with torch."""
