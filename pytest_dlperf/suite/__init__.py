"""The tests that come with the package, for suites that have system files only."""
