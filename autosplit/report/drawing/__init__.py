"""Pictures in SVG, for pages and as files.

- ``canvas``  a picture in pixels, its colours and texts
- ``graph``  the split graph: ``collapse`` groups ops into boxes, ``paths`` leads tensors from box
  to box, ``layout`` orders and places the boxes
- ``balance``  busy times of stages
- ``charts``, ``plot``  the charts of a study as values, and as pictures
"""
