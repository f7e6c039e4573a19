"""The verbs: pure, synchronous, deterministic. ``Engine.observe(change)`` in, ``Engine.decide(now) -> Plan`` out."""
