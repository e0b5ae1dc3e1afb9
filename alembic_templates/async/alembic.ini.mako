# Settings of Alembic: https://alembic.sqlalchemy.org/en/latest/tutorial.html#editing-the-ini-file

[alembic]
script_location = ${script_location}
prepend_sys_path = .
# what separates several paths in one setting; Alembic before 1.16 reads the second name
path_separator = os
version_path_separator = os

# env.py reads it. Keep passwords out of this file: env.py may take the URL from wherever you have it
sqlalchemy.url = driver://user:password@localhost/database

[loggers]
keys = root,sqlalchemy,alembic,public_id

[handlers]
keys = console

[formatters]
keys = generic

[logger_root]
level = WARNING
handlers = console
qualname =

[logger_sqlalchemy]
level = WARNING
handlers =
qualname = sqlalchemy.engine

[logger_alembic]
level = INFO
handlers =
qualname = alembic

# INFO shows the steps of a migration, and how far a backfill has come
[logger_public_id]
level = INFO
handlers =
qualname = sqlalchemy_public_id

[handler_console]
class = StreamHandler
args = (sys.stderr,)
level = NOTSET
formatter = generic

[formatter_generic]
format = %(levelname)-5.5s [%(name)s] %(message)s
datefmt = %H:%M:%S
