"""What crosses the wire: our custom resources and policies, the few fields we read of others, and their translation."""
