"""A helpdesk: a FastAPI service with several tenants, token logins, and no integer key in any request or response.

``python -m examples.helpdesk`` serves it.
"""
