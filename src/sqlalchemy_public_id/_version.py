"""The version, read by the build and by :data:`sqlalchemy_public_id.__version__`."""

__version__ = "1.0.0"
