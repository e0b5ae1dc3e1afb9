"""The test suites of SQLAlchemy and of packages around it, without the library and with it: ``make outside``."""
