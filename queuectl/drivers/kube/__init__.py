"""The real API server: one tuned session, list and watch, and the Cluster port on top."""
