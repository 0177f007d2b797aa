"""The results file, out and in; two of them compared."""
