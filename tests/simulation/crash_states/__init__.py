"""Every legal state of the disk after a power cut, and the check of recovery from it.

The method is that of ALICE.

`recording` is a disk that keeps every change in order; `states` enumerates what a power cut may
leave; `workloads` are short lives of one part of the engine with their promises at each moment.
"""
