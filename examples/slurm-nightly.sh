#!/bin/bash
#SBATCH --job-name=dlperf-nightly
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --signal=B:INT@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=nightly-%j.txt

# SIGINT comes five minutes before the time is up: enough to end what runs and to write the results.
# A job that Slurm requeues, for a node that failed or a preemption, begins anew in the same places:
# what it had measured is set aside.
night="runs/$SLURM_JOB_ID"
cd "$SLURM_SUBMIT_DIR" || exit 1
exec .venv/bin/pytest bench_tests -n auto --dlperf-cluster my-cluster --dlperf-strict \
    --dlperf-run-dir "$night" --dlperf-json "$night.json" --dlperf-html "$night.html" \
    --junitxml "$night.xml" "$@"
