"""What reaches people after a session: chat, mail, comments, and pings of a dead man's switch."""
