package clustertest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestComposeScripts runs what deploy/compose gives the two databases: the primary's
// commits wait for the standby, which waits for the primary once it is promoted, and the
// former primary becomes the standby of that one.
func TestComposeScripts(t *testing.T) {
	bin, who := installation(t)
	top, err := os.MkdirTemp("", "umbra-compose-")
	need.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	for _, f := range []string{"primary.sh", "standby.sh", "postgresql.conf"} {
		data, err := os.ReadFile(filepath.Join("../../../deploy/compose/db", f))
		need.NoError(t, err)
		need.NoError(t, os.WriteFile(filepath.Join(top, f), data, 0o644))
	}
	need.NoError(t, os.Chmod(top, 0o755))
	if who != nil {
		need.NoError(t, os.Chown(top, int(who.Uid), int(who.Gid)))
	}
	server := func(name string) *Server {
		s := &Server{Name: name, Port: freePort(t), t: t, bin: bin, dir: filepath.Join(top, name), who: who, log: &syncBuffer{}}
		t.Cleanup(func() {
			s.Kill()
			if log, err := os.ReadFile(s.dir + ".log"); err == nil && t.Failed() {
				t.Logf("PostgreSQL %s:\n%s", name, log)
			}
		})
		return s
	}
	// As the image does it: initdb, a server without a network, the script, the server.
	a, b := server("db1"), server("db2")
	secret := filepath.Join(top, "password")
	need.NoError(t, os.WriteFile(secret, []byte("s3cret"), 0o644))
	a.run("initdb", "-D", a.dir, "-U", "umbra", "--pwfile", secret, "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", "--locale=C")
	settings := func(s *Server) string {
		return strings.Join([]string{"-c config_file=" + top + "/postgresql.conf", "-c hba_file=" + s.dir + "/pg_hba.conf", "-c cluster_name=" + s.Name,
			"-c port=" + strconv.Itoa(s.Port), "-c listen_addresses=127.0.0.1", "-c unix_socket_directories=" + top, "-c shared_buffers=32MB"}, " ")
	}
	primary := a
	sh := func(s *Server, script string) {
		t.Helper()
		cmd := s.command("sh", "-c", script)
		cmd.Path = "/bin/sh"
		cmd.Env = append(cmd.Env, "PGDATA="+s.dir, "POSTGRES_USER=umbra", "POSTGRES_DB=postgres", "PGUSER=umbra", "PGPASSWORD=s3cret",
			"PRIMARY=127.0.0.1", "PRIMARY_PORT="+strconv.Itoa(primary.Port), "STANDBY="+s.Name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	start := func(s *Server) string {
		return `pg_ctl -D "$PGDATA" -w -l "$PGDATA.log" -o '` + settings(s) + `' start`
	}
	t.Cleanup(func() {
		for _, s := range []*Server{a, b} {
			_, _ = s.try("pg_ctl", "-D", s.dir, "-m", "immediate", "stop")
		}
	})
	sh(a, start(a)+` && PGHOST='`+top+`' PGPORT=`+strconv.Itoa(a.Port)+` sh `+top+`/primary.sh && pg_ctl -D "$PGDATA" -w stop && `+start(a))
	// The standby's script twice: the second finds its copy.
	sh(b, `mkdir "$PGDATA.new" && sh `+top+`/standby.sh true`)
	sh(b, `sh `+top+`/standby.sh true && `+start(b))

	ask := func(s *Server, query string) string {
		t.Helper()
		return s.run("psql", "-X", "-A", "-t", "-h", top, "-p", strconv.Itoa(s.Port), "-U", "umbra", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", query)
	}
	if err := Await(patience, func() (bool, error) {
		return ask(a, "SELECT string_agg(application_name || ' ' || sync_state, ',') FROM pg_stat_replication") == "db2 quorum", nil
	}); err != nil {
		t.Fatal(err)
	}
	ask(a, "CREATE TABLE x (n int)") // waits for the standby, and ends
	if got := ask(b, "SELECT count(*) FROM x"); got != "0" {
		t.Errorf("the standby has %q", got)
	}
	if got := ask(b, "SHOW synchronous_standby_names"); got != `ANY 1 ("127.0.0.1")` {
		t.Errorf("once promoted the standby waits for %q", got)
	}
	for name, want := range map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": "ANY 1 (db2)"} {
		if got := ask(a, "SHOW "+name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	// The primary is lost, and begins again as the standby of the other one, which has
	// no slot for it.
	sh(a, `pg_ctl -D "$PGDATA" -m immediate stop && rm -r "$PGDATA"`)
	sh(b, `pg_ctl -D "$PGDATA" -w promote`)
	primary = b
	sh(a, `sh `+top+`/standby.sh true && sh `+top+`/standby.sh true && `+start(a))
	if err := Await(patience, func() (bool, error) {
		return ask(b, "SELECT string_agg(r.application_name || ' ' || s.slot_name, ',') FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid") == "db1 db1", nil
	}); err != nil {
		t.Fatalf("the former primary does not follow: %v", err)
	}
}
