"""How a study is stored: ``storage`` (databases), ``records`` (documents in its attributes).

``optuna_internals`` is the one module that uses private names of Optuna.
"""
