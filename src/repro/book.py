"""What chapters use to show the library's own code, so that no cell types it again; and whether this is one."""

import inspect
import sys
import textwrap


def source(*objects):
    """The source of functions and classes, as highlighted code in the page."""
    from IPython.display import Markdown

    return Markdown("\n\n".join(f"```python\n{textwrap.dedent(inspect.getsource(one)).rstrip()}\n```"
                                for one in objects))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")
