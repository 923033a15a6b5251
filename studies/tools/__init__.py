"""Tools that write the pictures, tables and reference pages of the documentation."""
