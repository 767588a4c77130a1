"""The four services of a run, one folder for each process."""
