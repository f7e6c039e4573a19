"""Health, metrics and the JSON API of a running controller."""
