"""The release protocol explored: the real ``control/release.py``, engine and source on the in-memory store, in every order."""
