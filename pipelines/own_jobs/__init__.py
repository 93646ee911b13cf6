"""The earlier name of `pipelines.platform_jobs`, for executors that are started with it."""
