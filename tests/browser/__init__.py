"""The dashboard in a real Chromium, on a real controller with a cluster in memory."""
