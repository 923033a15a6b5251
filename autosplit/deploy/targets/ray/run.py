"""Run this export on a Ray cluster: python run.py [ADDRESS] < ITEMS > OUTPUTS.

Both are raw arrays: of each item its inputs, or outputs, in the order of split.json. Every node
needs autosplit. placement.json has the place of each replica: a node, and its cores there.
"""

import json
import sys
from pathlib import Path

from autosplit.deploy.load import on_ray
from autosplit.deploy.raw_items import serve, standard_input
from autosplit.errors import AutosplitError

FOLDER = Path(__file__).parent
PLACEMENT = json.loads((FOLDER / "placement.json").read_text(encoding="utf-8"))
ADDRESS = sys.argv[1] if len(sys.argv) > 1 else None

try:
    with on_ray(FOLDER, PLACEMENT, ADDRESS) as pipeline:
        serve(pipeline, standard_input(), sys.stdout.buffer)
except AutosplitError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
