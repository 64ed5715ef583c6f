"""The command line as `python -m repro`, and on several GPUs `torchrun --nproc_per_node 2 -m repro run …`."""

from repro.cli import main

main()
