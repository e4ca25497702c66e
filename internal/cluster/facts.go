package cluster

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/internal/cluster/engine"
)

// Facts are what an owner has to know of the engine and no node asks for.
type Facts struct {
	Version  string
	Latency  time.Duration // of one small query
	Settings map[string]string
	Standbys []Standby

	Connections, MaxConnections int
	Tables                      []TableFacts
	// Rate is how fast this machine's boot clock runs by the engine's clock; 1: as
	// fast.
	Rate float64
}

// Standby is a server that is connected to the primary. Name and Sync are empty for a
// role that may not see them.
type Standby struct{ Name, State, Sync string }

// Waited reports whether commits wait for the standby.
func (s Standby) Waited() bool { return s.Sync == "sync" || s.Sync == "quorum" }

// TableFacts are the rows of a table, by PostgreSQL's statistics.
type TableFacts struct {
	Name       string
	Live, Dead int64
	Vacuumed   time.Duration // since the last time; negative: never
}

// watched are the settings that Facts reads.
var watched = []string{"synchronous_standby_names", "synchronous_commit", "fsync", "full_page_writes", "autovacuum", "hot_standby_feedback", "max_connections"}

// rateOver is for how long the boot clock is compared with the engine's.
const rateOver = time.Second

// Facts asks the engine; it takes a second.
func (a *Admin) Facts(ctx context.Context) (*Facts, error) {
	f := &Facts{Version: versionText(a.n.state.Version), Settings: map[string]string{}}
	err := a.n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error {
		clock := func() (now, before, after time.Duration, err error) {
			before = a.n.opts.boot()
			var us int64
			err = c.QueryRow(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`).Scan(&us)
			return time.Duration(us) * time.Microsecond, before, a.n.opts.boot(), err
		}
		if _, _, _, err := clock(); err != nil { // the statement is prepared now
			return err
		}
		now, before, after, err := clock()
		if err != nil {
			return err
		}
		f.Latency = after - before
		rows, err := c.Query(ctx, `SELECT name, setting FROM pg_settings WHERE name = ANY ($1)`, watched)
		if err != nil {
			return err
		}
		var name, value string
		if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { f.Settings[name] = value; return nil }); err != nil {
			return err
		}
		rows, err = c.Query(ctx, `SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, '') FROM pg_stat_replication ORDER BY 1`)
		if err != nil {
			return err
		}
		if f.Standbys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Standby]); err != nil {
			return err
		}
		if err := c.QueryRow(ctx, `SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity`).Scan(&f.Connections, &f.MaxConnections); err != nil {
			return err
		}
		// Partitions count as their table.
		rows, err = c.Query(ctx, `SELECT regexp_replace(relname, '_[0-9]+$', ''), sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint,
				coalesce(extract(epoch FROM now() - min(coalesce(greatest(last_vacuum, last_autovacuum), 'epoch'))) * 1000, -1)::bigint
			FROM pg_stat_user_tables WHERE schemaname = current_schema() GROUP BY 1 ORDER BY 1`)
		if err != nil {
			return err
		}
		if f.Tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t TableFacts, err error) {
			var ms int64
			err = row.Scan(&t.Name, &t.Live, &t.Dead, &ms)
			t.Vacuumed = time.Duration(ms) * time.Millisecond
			if t.Vacuumed > 10*365*24*time.Hour {
				t.Vacuumed = -1
			}
			return t, err
		}); err != nil {
			return err
		}
		if !a.n.pause(rateOver - (a.n.opts.boot() - after)) {
			return ctx.Err()
		}
		later, laterBefore, laterAfter, err := clock()
		if err != nil {
			return err
		}
		// The engine looked in the middle of each answer, about.
		mine := (laterBefore+laterAfter)/2 - (before+after)/2
		if passed := later - now; passed > 0 {
			f.Rate = float64(mine) / float64(passed)
		}
		return nil
	})
	if err != nil {
		return nil, prefixed(err)
	}
	return f, nil
}
