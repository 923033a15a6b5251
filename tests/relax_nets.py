"""Relax modules from their text."""

from textwrap import indent


def parsed(text):
    """The module of a TVMScript text, as TVM itself parses it."""
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    body = text[text.index("@I.ir_module") :]
    return tvm.script.from_source(body, dict(_default_globals()))


def module(*functions):
    """A module of such functions."""
    return parsed("@I.ir_module\nclass M:\n" + "\n".join(functions))


def function(name, body, params="x: R.Tensor((2, 3), 'float32')", options=""):
    """The text of a function."""
    return f"    @R.function{options}\n    def {name}({params}):\n{indent(body, ' ' * 8)}\n"
