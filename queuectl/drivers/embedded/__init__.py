"""A cluster in memory behind the ``Cluster`` port: the API's own rules, for tests, replays and the demo."""
