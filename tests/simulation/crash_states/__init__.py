"""Every legal state of the disk after a power cut, and what recovery must make of it (ALICE's way).

`recording` is a disk that keeps what was asked of it in order; `states` enumerates what a power cut
may leave; `workloads` are short lives of one part of the engine with what they had promised at each
moment.
"""
