"""A shop with FastAPI: every endpoint accepts and returns public ids, and no integer key leaves it.

``python -m examples.fastapi_shop [URL]`` creates the tables in the database at URL (with an asynchronous driver; by
default SQLite in a temporary file), fills them, and serves the shop at http://127.0.0.1:8000 until it is interrupted.
"""
