"""Runs in a Kubernetes cluster: jobs by the official client, their pods and logs."""
