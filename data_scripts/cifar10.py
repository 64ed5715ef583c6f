"""Fetch CIFAR-10 (60,000 images) from the hub: python data_scripts/cifar10.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets cifar10-full/*.npz and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["cifar10"], __doc__)
