"""One page that opens offline."""
