"""Many inputs into one store of results: findings, tasks, the run, its workers, and the tables of all results."""
