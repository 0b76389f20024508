"""A sweep of the archive, step by step: ranges, copies, proof, commit, eviction."""
