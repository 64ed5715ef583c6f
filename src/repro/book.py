"""What chapters use to show the library's own code, so that no cell types it again."""

import inspect
import textwrap


def source(*objects):
    """The source of functions and classes, as highlighted code in the page."""
    from IPython.display import Markdown

    return Markdown("\n\n".join(f"```python\n{textwrap.dedent(inspect.getsource(one)).rstrip()}\n```"
                                for one in objects))
