"""How a study is stored: ``storage`` (databases), ``records`` (documents in its attributes).

``attributes`` reads those documents, whoever wrote them. ``optuna_internals`` is the one module
that uses private names of Optuna.
"""
