"""What a session has to say, decided and worded once; reports and notices render it."""
