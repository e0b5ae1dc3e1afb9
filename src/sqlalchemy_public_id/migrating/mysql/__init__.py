"""Everything that a migration knows of MySQL and MariaDB."""
