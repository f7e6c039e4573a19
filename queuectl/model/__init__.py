"""The nouns: frozen values in integers, without any input or output. Nothing here imports another part of queuectl."""
