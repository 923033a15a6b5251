"""What a study may measure: ``candidate_space`` is what all spaces have.

``search_space`` has the splits along given devices, and ``enumeration`` lists them.
``deployment_space`` has the deployments on cores, as many as ``core_room`` lets there be. ``keys``
are the names of candidates, and ``unmeasured`` finds free ones. Imports cuts, planner and
surrogate.
"""
