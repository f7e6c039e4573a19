"""The verbs: ``Engine.observe(change)`` and ``Engine.decide(now) -> Plan``, pure, synchronous and deterministic.

Read in this order: ``engine`` (the pipeline on one screen), ``standing`` and ``slots`` (a gang's life), ``state`` with
``derive``, ``fleet``, ``pools`` and ``branches`` (what is charged where), ``ordering`` (whose turn), ``ways`` (in which pool),
``placement`` (one gang onto the nodes). ``fairshare`` with ``entitlement`` and ``surplus`` divides a pool among
queues; nothing acts on it yet.
"""
