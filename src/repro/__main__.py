"""`python -m repro`, and under torchrun `torchrun --nproc_per_node 2 -m repro run …`: the command line."""

from repro.cli import main

main()
