"""The page of a study.

- ``page``  fills the template ``page.html``; ``page.js`` makes the page interactive
"""
