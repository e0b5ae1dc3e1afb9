"""A shop behind FastAPI: every endpoint takes and gives public ids, and no integer key leaves it.

``python -m examples.fastapi_shop [URL]`` makes the tables in the database at URL (an asynchronous one; SQLite in a
temporary file where none is given), fills them, and serves the shop at http://127.0.0.1:8000 until it is interrupted.
"""
