"""The engine in virtual time: traces and scenario files, without a cluster."""
