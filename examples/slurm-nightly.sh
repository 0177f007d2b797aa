#!/bin/bash
#SBATCH --job-name=dlperf-nightly
#SBATCH --nodes=4
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --signal=B:INT@300
#SBATCH --output=nightly-%j.txt

# SIGINT comes five minutes before the time is up: enough to end what runs and to write the results.
cd "$SLURM_SUBMIT_DIR" || exit 1
exec .venv/bin/pytest bench_tests -n auto --dlperf-cluster my-cluster --dlperf-strict \
    --dlperf-run-dir "runs/$SLURM_JOB_ID" --dlperf-json "runs/$SLURM_JOB_ID.json" \
    --dlperf-html "runs/$SLURM_JOB_ID.html" --junitxml "runs/$SLURM_JOB_ID.xml" "$@"
