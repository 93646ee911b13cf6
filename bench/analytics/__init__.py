"""Analytics benchmarks: cycles, replays and aged lakes, in CPU and wall-clock seconds."""
