"""Commands of a page wait for no calm machine, as tests disturb each other; Python imports this."""

from autosplit.hardware.measurement import disturbance

disturbance.wait_until_calm = lambda limit: limit
