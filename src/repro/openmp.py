"""How the threads of OpenMP wait for work: spinning or asleep.

PyTorch on Linux computes with the threads of libgomp. Between two operations they spin, which starts the next one at
once. Beside another process, spinning threads take a core from those that still compute: a step of attention then took
3.2 times as long. With `OMP_WAIT_POLICY=PASSIVE` they sleep, and it took 1.6 times as long; on an idle machine, waking
them costs about a fifth more time (results/bench/contention.json). libgomp reads the policy once, when torch is loaded.
"""

import os
import sys
from collections.abc import Mapping

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
GIVEN = {name: os.environ[name] for name in (POLICY, SPINS) if name in os.environ}  # before this process set any


def sleep_while_waiting() -> None:
    """Let the threads of this process, and of those that it starts, sleep while they wait. Settings of the user stay,
    and nothing changes in a process that has loaded torch.

    >>> sleep_while_waiting()
    """
    if "torch" not in sys.modules and not {POLICY, SPINS} & os.environ.keys():
        os.environ[POLICY] = "PASSIVE"


def waiting(settings: Mapping[str, str] = os.environ) -> str:
    """How threads wait under these settings, and the setting that decides: the number of spins, then the policy.

    >>> waiting({"OMP_WAIT_POLICY": "PASSIVE"}), waiting({})
    ('asleep (OMP_WAIT_POLICY=PASSIVE)', 'spinning')
    """
    if SPINS in settings:
        asleep, name = settings[SPINS].strip() == "0", SPINS
    else:
        asleep, name = settings.get(POLICY, "").strip().upper() == "PASSIVE", POLICY
    return ("asleep" if asleep else "spinning") + (f" ({name}={settings[name]})" if name in settings else "")
