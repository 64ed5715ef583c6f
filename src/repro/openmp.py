"""How the threads of OpenMP wait for work: spinning or asleep.

PyTorch on Linux computes with the threads of libgomp. Between two operations they spin, which starts the next one at
once. If another process is running, spinning threads take cores from threads that still compute. With
`OMP_WAIT_POLICY=PASSIVE` they sleep, but then waking them for every small operation costs time, even on an idle
machine. So here they spin briefly and then sleep (results/bench/contention.json compares all three). libgomp reads
these settings once, when torch is loaded.
"""

import os
import sys
from collections.abc import Mapping

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
BRIEF = 1000  # spins, some ten microseconds: longer than the gap between most operations, shorter than waking a thread
SETTINGS = {POLICY: "PASSIVE", SPINS: str(BRIEF)}  # only libgomp reads the count; other OpenMPs know only the policy
GIVEN = {name: os.environ[name] for name in (POLICY, SPINS) if name in os.environ}  # before this process set any


def sleep_while_waiting() -> None:
    """Let the threads of this process, and of those that it starts, sleep after a brief wait. Settings of the user
    stay, and nothing changes in a process that has already loaded torch.

    >>> sleep_while_waiting()
    """
    if "torch" not in sys.modules and not {POLICY, SPINS} & os.environ.keys():
        os.environ.update(SETTINGS)


def waiting(settings: Mapping[str, str] = os.environ) -> str:
    """How threads wait under these settings, and the setting that decides: the spin count if given, else the policy.

    >>> waiting({"OMP_WAIT_POLICY": "PASSIVE"}), waiting({})
    ('asleep (OMP_WAIT_POLICY=PASSIVE)', 'spinning')
    >>> waiting(SETTINGS)
    'soon asleep (GOMP_SPINCOUNT=1000)'
    """
    if SPINS in settings:
        name, spins = SPINS, settings[SPINS].strip()
        kind = "asleep" if spins == "0" else "soon asleep" if spins.isdecimal() and int(spins) <= BRIEF else "spinning"
    else:
        name = POLICY
        kind = "asleep" if settings.get(POLICY, "").strip().upper() == "PASSIVE" else "spinning"
    return kind + (f" ({name}={settings[name]})" if name in settings else "")
