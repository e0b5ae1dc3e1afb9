"""Code that the database stores, such as the bodies of triggers: what breaks if a table gets or loses a column.

The modules of this package know no database: the catalogs are read by the modules ``stored_code`` of each one.
"""
