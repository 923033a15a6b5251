"""Pictures in SVG, for pages and as files.

- ``canvas``  a picture in pixels, its colours and texts
- ``graph``  the split graph: ``collapse`` groups ops into boxes, ``paths`` leads tensors from box
  to box, ``rows`` breaks the columns into rows, ``layout`` orders and places the boxes
- ``balance``, ``timeline``  busy times of stages, and a run as it happened
- ``charts``, ``plot``  the charts of a study as values, and as pictures
"""
