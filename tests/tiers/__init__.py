"""The scenarios of tests/scenarios on clusters with objects: the one in memory, and a real control plane."""
