"""The launch over several nodes that the book tells is one that accelerate takes."""

import re
import shlex
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

ROOT = Path(__file__).parents[2]


def test_accelerate_reads_the_profile():
    config = load_config_from_file(str(ROOT / "profiles/accelerate-ddp.yaml"))
    assert config.distributed_type == "MULTI_GPU"
    assert (config.num_machines, config.num_processes, config.rdzv_backend) == (2, 16, "static")


def test_the_command_in_the_book_starts_the_study_on_every_node(monkeypatch):
    text = (ROOT / "book/how-to-run.md").read_text()
    command, = re.findall(r"accelerate launch \\\n(.*?)'\n", text, re.DOTALL)
    for variable, value in (("$SLURM_NNODES", "3"), ("$((8 * SLURM_NNODES))", "24"), ("$SLURM_NODEID", "2"),
                            ("$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)", "node-a")):
        assert command.count(variable) == 1
        command = command.replace(variable, value)
    monkeypatch.chdir(ROOT)
    told, *_ = _validate_launch_command(launch_command_parser().parse_args(shlex.split(command.replace("\\\n", ""))))
    assert told.multi_gpu
    assert (told.num_machines, told.num_processes, told.machine_rank) == (3, 24, 2)
    assert (told.main_process_ip, told.main_process_port, told.rdzv_backend) == ("node-a", 29500, "static")
    assert (told.module, told.training_script, told.training_script_args[0]) == (True, "repro", "run")


@pytest.mark.parametrize(("launcher", "processes"), [("torchrun", 4), ("srun", 16)])
def test_the_batches_in_the_book_divide_among_the_processes(launcher, processes):
    from repro.study import experiment

    text = (ROOT / "book/how-to-run.md").read_text()
    told = re.search(rf"^{launcher} .*?-m repro run (\S+) --scale (\w+)(?: --set batch_size=(\d+))?", text, re.M | re.S)
    name, scale, batch_size = told.groups()
    for config in experiment(name).plan(scale, {"batch_size": batch_size} if batch_size else {}):
        assert config.batch_size % processes == 0
