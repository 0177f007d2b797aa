"""Values that all rooms share: frozen, without input or output."""
