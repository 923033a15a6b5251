"""Pictures in SVG, for pages and as files.

- ``canvas``  a picture in pixels, its colours and texts
- ``graph``  the fused graph with its cuts; ``lanes`` leads tensors from row to row
- ``charts``  the charts of a study
- ``timeline``  when each stage of a pipeline computed which item
"""
