"""queuectl: a gang and fair-share batch queue controller for GPU clusters on Kubernetes."""

__version__ = "0.1.0"
