"""Makes a measurement of a case: launched, or read from logs; once per session."""
