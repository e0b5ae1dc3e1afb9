"""The parts of a migration that are specific to MySQL and MariaDB."""
