"""What the ORM knows of public ids: models, the state of objects, sessions."""
