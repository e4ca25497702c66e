package clustertest

import (
	"net"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestPair holds the rig to what the cluster's tests rely on: the primary waits
// for the standby, and the standby can take over.
func TestPair(t *testing.T) {
	p := Start(t, Options{Standby: true})
	p.A.SQL("CREATE TABLE x(i int)")
	p.B.Await("SELECT count(*) FROM pg_tables WHERE tablename = 'x'", "1")
	p.B.Stop()
	done := make(chan error, 1)
	go func() {
		_, err := p.A.try("psql", "-h", "127.0.0.1", "-p", portOf(p.A.Address()), "-U", "umbra", "-c", "INSERT INTO x VALUES (1)", "postgres")
		done <- err
	}()
	p.A.Await("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
	p.B.Start()
	need.NoError(t, <-done)
	p.A.Kill()
	p.B.Promote()
	if got := p.B.SQL("SELECT i, pg_is_in_recovery() FROM x"); got != "1|f" {
		t.Errorf("the promoted standby has %q", got)
	}
	p.B.Pause()
	if len(p.B.paused) < 3 {
		t.Errorf("%d processes are paused", len(p.B.paused))
	}
	p.B.Resume()
	p.B.Await("SELECT 1", "1")
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func TestLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 100)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	k := NewLink(t, l.Addr().String())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", k.Address())
		need.NoError(t, err)
		return c
	}
	echo := func(c net.Conn, within time.Duration) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	c := dial()
	defer c.Close()
	need.NoError(t, echo(c, patience))
	k.Hold(Back)
	if err := echo(c, 50*time.Millisecond); err == nil {
		t.Error("a held answer arrived")
	}
	k.Release()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("a released answer did not arrive: %v", err)
	}
	k.CutBeforeAnswer()
	if err := echo(c, patience); err == nil {
		t.Error("the dropped answer arrived")
	}
	k.Refuse()
	r := dial()
	defer r.Close()
	if err := echo(r, patience); err == nil {
		t.Error("a refusing link answered")
	}
	k.Accept()
	again := dial()
	defer again.Close()
	if err := echo(again, patience); err != nil {
		t.Error(err)
	}
}
