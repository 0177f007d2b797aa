"""Every measurement of every session, and what only many of them show."""
