"""Tools that write the tables and reference pages of the documentation."""
