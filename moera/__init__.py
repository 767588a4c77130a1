"""moera trains Mixture-of-Experts language models with reinforcement learning."""
