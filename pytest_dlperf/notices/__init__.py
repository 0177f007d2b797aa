"""What reaches people after a session: Apprise, JSON, comments, pings of a dead man's switch."""
