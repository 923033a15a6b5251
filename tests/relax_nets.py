"""Relax modules from their text."""


def parsed(text):
    """The module of a TVMScript text, as TVM itself parses it."""
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    body = text[text.index("@I.ir_module") :]
    return tvm.script.from_source(body, dict(_default_globals()))
