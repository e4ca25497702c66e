#!/bin/sh
# Starts the standby; the first time it copies the primary. What a kill leaves of a
# copy is copied again. After a promotion this server waits for the former primary,
# which has to be made its standby (docs/FLEET.md): the slot for it does not exist there yet.
set -eu
if [ ! -d "$PGDATA" ]; then
	rm -rf "$PGDATA.new"
	psql --set ON_ERROR_STOP=1 --quiet --no-psqlrc --output /dev/null --host "$PRIMARY" --port "${PRIMARY_PORT:-5432}" --dbname postgres <<SQL
SELECT pg_create_physical_replication_slot('$STANDBY') WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '$STANDBY');
SQL
	pg_basebackup --host "$PRIMARY" --port "${PRIMARY_PORT:-5432}" --pgdata "$PGDATA.new" \
		--write-recovery-conf --wal-method stream --slot "$STANDBY" --checkpoint fast
	printf "synchronous_standby_names = 'ANY 1 (\"%s\")'\n" "$PRIMARY" >>"$PGDATA.new/postgresql.auto.conf"
	mv "$PGDATA.new" "$PGDATA"
fi
exec "$@"
