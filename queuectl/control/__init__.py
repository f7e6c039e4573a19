"""The asyncio loop around the engine: one way in (source), one way out (release through the actuator)."""
