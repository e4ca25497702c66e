#!/bin/sh
# Runs once, in the empty database of the primary: a standby may follow, and commits
# wait for it from the next start on. That is the last step, since a commit without a
# standby would wait here for ever.
set -eu
echo "host replication $POSTGRES_USER all scram-sha-256" >>"$PGDATA/pg_hba.conf"
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<SQL
SELECT pg_create_physical_replication_slot('db2');
ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (db2)';
SQL
