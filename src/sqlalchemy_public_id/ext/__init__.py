"""Parts for other packages: import the one you use, such as ``sqlalchemy_public_id.ext.fastapi``."""
