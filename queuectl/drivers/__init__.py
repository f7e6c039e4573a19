"""The same engine, several ways to live: a real API server (kube)."""
