"""Which file an audited event of Python creates, changes, or deletes."""

import os

WRITES = {"os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "os.truncate": 0,
          "tempfile.mkstemp": 0, "tempfile.mkdtemp": 0, "shutil.rmtree": 0}  # event -> its argument that is written


def written(event: str, values: tuple) -> str | None:
    """The path that an event of `sys.addaudithook` writes; None if it writes none."""
    if event == "open":
        path, mode, flags = values
        writes = set(mode or "") & set("wax+") if isinstance(mode, str) else flags & (
            os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    else:
        path, writes = values[WRITES[event]] if event in WRITES else None, True
    return os.path.abspath(os.fsdecode(path)) if writes and isinstance(path, (str, bytes, os.PathLike)) else None
