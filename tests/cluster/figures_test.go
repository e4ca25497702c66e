package cluster

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// The figures of a cluster (docs/FLEET.md): each test prints a line that begins with
// "figure", and fails where UMBRA_FIGURES_HOLD is set and the figure is not held. They
// are for quiet processors.

// amount is how much of something a figure is made of: a number of the environment, or
// what is enough to see that it works.
func amount(t *testing.T, name string, otherwise int) int {
	t.Helper()
	need.Soak(t, "it measures")
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// times are durations that were measured.
type times []time.Duration

func (l times) at(percent int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return l[min(len(l)-1, len(l)*percent/100)]
}

func (l times) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, longest %v of %d", l.at(50).Round(100*time.Microsecond), l.at(99).Round(100*time.Microsecond), l.at(100).Round(100*time.Microsecond), len(l))
}

// figure prints one, and whether it is held.
func figure(t *testing.T, held bool, format string, args ...any) {
	t.Helper()
	text := "figure " + fmt.Sprintf(format, args...)
	if !held {
		text += " (MISSED)"
	}
	t.Log(text)
	if !held && os.Getenv("UMBRA_FIGURES_HOLD") != "" {
		t.Error("the figure is not held")
	}
}

// defaults sets the lease and the wait of a cluster's defaults for a test.
func defaults(t *testing.T) {
	formerWait, formerLease := wait, lease
	wait, lease = 8*time.Second, 3*time.Second
	t.Cleanup(func() { wait, lease = formerWait, formerLease })
}

// put writes 3 KB that do not get smaller to a file, and returns how long that took.
func (w *world) put(m *member, at int, name string) (took time.Duration, ok bool) {
	body := make([]byte, 1500)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	began := time.Now()
	a := w.ask(m, "PUT", "/tasks/"+w.spaces[at].task+"/content?path="+name, hex.EncodeToString(body))
	return time.Since(began), a.err == nil && a.status/100 == 2
}

// firstAnswer sends a write each 50 ms to a node and returns when the first was done.
func (w *world) firstAnswer(m *member, at int) time.Time {
	w.t.Helper()
	done := make(chan time.Time, 1)
	var sending sync.WaitGroup
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for i := 0; ; i++ {
		sending.Go(func() {
			if _, ok := w.put(m, at, fmt.Sprintf("first%d", i%4)); ok {
				select {
				case done <- time.Now():
				default:
				}
			}
		})
		select {
		case <-tick.C:
			continue
		case when := <-done:
			sending.Wait()
			return when
		case <-limit.C:
			w.t.Fatal("no write was done within a minute")
		}
	}
}

// TestFailoverFigure measures from a fault of the owner to the first write that another
// node does. UMBRA_FAILOVERS is how many of each fault.
func TestFailoverFigure(t *testing.T) {
	n := amount(t, "UMBRA_FAILOVERS", 2)
	defaults(t)
	w := newWorld(t, 1)
	var all times
	for _, fault := range []struct {
		name       string
		begin, end func(m *member)
	}{
		{"kill -9", w.kill, (*member).restart},
		{"SIGSTOP", func(m *member) { w.signal(m, syscall.SIGSTOP) }, func(m *member) { w.signal(m, syscall.SIGCONT) }},
		{"partition", func(m *member) {
			for _, k := range append([]*clustertest.Link{m.front, m.store}, m.engines...) {
				k.Hold(clustertest.There)
				k.Hold(clustertest.Back)
			}
		}, func(m *member) { release(append([]*clustertest.Link{m.front, m.store}, m.engines...)) }},
	} {
		var took times
		for range n {
			w.recovered(fault.name)
			owner := w.ownerOf(0)
			other := w.after(owner)
			<-time.After(time.Duration(rand.Int64N(int64(lease)))) // at any moment between two beats
			began := time.Now()
			fault.begin(owner)
			took = append(took, w.firstAnswer(other, 0).Sub(began))
			fault.end(owner)
		}
		t.Logf("%s: %v", fault.name, took)
		all = append(all, took...)
	}
	figure(t, all.at(50) <= 3500*time.Millisecond && all.at(99) <= 5*time.Second, "failover: %v (p50 ≤ 3.5 s, p99 ≤ 5 s)", all)
}

// TestEngineFailoverFigure measures from the first commit that a promoted standby takes
// to the first write that a node does. UMBRA_FAILOVERS is how many times.
func TestEngineFailoverFigure(t *testing.T) {
	n := amount(t, "UMBRA_FAILOVERS", 2)
	defaults(t)
	w := newWorld(t, 1)
	w.pair.A.SQL("CREATE TABLE bare (n bigint)")
	var took times
	for range n {
		w.recovered("a failover")
		m := w.ownerOf(0)
		w.pair.A.AwaitStandby()
		w.pair.A.Kill()
		w.pair.B.Promote()
		var first, bare time.Time
		var both sync.WaitGroup
		both.Go(func() { first = w.firstAnswer(m, 0) })
		both.Go(func() {
			w.pair.B.AwaitCommit("INSERT INTO bare VALUES (1)")
			bare = time.Now()
		})
		w.pair.A.Follow(w.pair.B)
		both.Wait()
		took = append(took, max(0, first.Sub(bare)))
		w.pair.A, w.pair.B = w.pair.B, w.pair.A
	}
	figure(t, took.at(100) <= 2*time.Second, "engine failover: %v after a bare client's first commit (≤ 2 s)", took)
}

// TestForwardFigure measures one client's writes at the owner and at another node, in
// turns. UMBRA_WRITES is how many of each.
func TestForwardFigure(t *testing.T) {
	n := amount(t, "UMBRA_WRITES", 200)
	defaults(t)
	w := newWorld(t, 1)
	owner := w.ownerOf(0)
	other := w.after(owner)
	var own, forwarded times
	sum, count := w.appends(owner)
	for i := range n + 20 {
		for _, turn := range []struct {
			at   *member
			took *times
		}{{owner, &own}, {other, &forwarded}} {
			took, ok := w.put(turn.at, 0, "f"+strconv.Itoa(i%50))
			if !ok {
				t.Fatal("a write failed")
			}
			if i >= 20 { // warm
				*turn.took = append(*turn.took, took)
			}
		}
	}
	sum2, count2 := w.appends(owner)
	commit := time.Duration((sum2 - sum) / max(1, count2-count) * float64(time.Second))
	figure(t, own.at(50) <= commit+time.Millisecond, "HTTP write: %v; the commits took %v on average (p50 ≤ the commit + 1 ms)", own, commit.Round(10*time.Microsecond))
	figure(t, forwarded.at(50) <= own.at(50)+600*time.Microsecond, "forwarded: %v (p50 ≤ + 0.6 ms)", forwarded)
}

// appends reads how long the appends of a node took, in seconds, and how many there were.
func (w *world) appends(m *member) (sum, count float64) {
	w.t.Helper()
	a := w.ask(m, "GET", "/metrics", "")
	for line := range strings.Lines(string(a.body)) {
		for name, to := range map[string]*float64{"umbra_cluster_append_seconds_sum ": &sum, "umbra_cluster_append_seconds_count ": &count} {
			if text, ok := strings.CutPrefix(line, name); ok {
				var err error
				if *to, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
	return sum, count
}

// TestColdOpenFigure measures the first read of a small file at a node with an empty
// cache, of a short and of a long history, with a store that answers after 30 ms.
// UMBRA_OPENS is how many, UMBRA_COMMITS how long the long history is.
func TestColdOpenFigure(t *testing.T) {
	opens, long := amount(t, "UMBRA_OPENS", 3), amount(t, "UMBRA_COMMITS", 1000)
	defaults(t)
	w := newWorld(t, 2)
	var medians []time.Duration
	for at, commits := range []int{100, long} {
		owner := w.ownerOf(at)
		w.put(owner, at, "old")
		var writing sync.WaitGroup
		for c := range 8 {
			writing.Go(func() {
				for i := c; i < commits; i += 8 {
					if _, ok := w.put(owner, at, fmt.Sprintf("d%d/f%d", i%20, i%500)); !ok {
						t.Error("a write failed")
						return
					}
				}
			})
		}
		writing.Wait()
		w.put(owner, at, "small")
		w.merged(at)
		var took, listed, old times
		for range opens {
			// Nothing has it open, and all of it is in the store.
			for _, m := range w.members {
				w.drain(m)
			}
			m := w.members[0]
			m.setPaused(true)
			m.server.Stop()
			need.NoError(t, os.RemoveAll(m.server.DataDir))
			m.restart()
			w.s3.Fail(blobtest.Faults{Delay: 30 * time.Millisecond})
			began := time.Now()
			a := w.ask(m, "GET", "/tasks/"+w.spaces[at].task+"/content?path=small", "")
			took = append(took, time.Since(began))
			began = time.Now()
			l := w.ask(m, "GET", "/tasks/"+w.spaces[at].task+"/list?path=d7", "")
			listed = append(listed, time.Since(began))
			began = time.Now()
			o := w.ask(m, "GET", "/tasks/"+w.spaces[at].task+"/stat?path=old", "")
			old = append(old, time.Since(began))
			w.s3.Fail(blobtest.Faults{})
			if l.err != nil || l.status != http.StatusOK || o.err != nil || o.status != http.StatusOK {
				t.Fatalf("%v %d %s, %v %d %s", l.err, l.status, l.body, o.err, o.status, o.body)
			}
			if a.err != nil || a.status != http.StatusOK || len(a.body) != 3000 {
				t.Fatalf("%v %d %s", a.err, a.status, a.body)
			}
			for _, m := range w.members[1:] {
				w.undrain(m)
			}
		}
		medians = append(medians, took.at(50))
		t.Logf("right after it, a list of 25 files that changed lately, with their times: %v; stat of the oldest file: %v", listed, old)
		figure(t, took.at(50) <= 150*time.Millisecond && took.at(99) <= 500*time.Millisecond, "cold open at %d commits: %v (p50 ≤ 150 ms, p99 ≤ 500 ms)", commits, took)
	}
	figure(t, float64(medians[1]) <= 1.2*float64(medians[0]), "cold open of the long history next to the short one: %.2f", float64(medians[1])/float64(medians[0]))
}

// merged waits until a workspace's packs are merged, which is put off while it is written to.
func (w *world) merged(at int) {
	w.t.Helper()
	for packs, same := -1, 0; same < 3; <-time.After(time.Second) {
		_, out, errOut := harness.Run(w.t, w.verbs(), "cluster", "status", w.spaces[at].id, "--json")
		var s struct{ Workspaces []struct{ Packs int } }
		if err := json.Unmarshal([]byte(out), &s); err != nil || len(s.Workspaces) != 1 {
			w.t.Fatalf("status: %s%s", out, errOut)
		}
		if same++; s.Workspaces[0].Packs != packs {
			packs, same = s.Workspaces[0].Packs, 0
		}
	}
}

// TestIdleFigure makes workspaces with a task that nothing uses, and measures by difference what
// each takes in the database, in the store, and in the memory of the nodes.
// UMBRA_WORKSPACES is how many. They are made in rounds, each at rest, packed and vacuumed
// before the next, and the first four are not counted: what the tables and their indexes
// have for rows that come and are removed again does not grow from then on. The figure is
// of all relations of the schema, after a plain VACUUM.
func TestIdleFigure(t *testing.T) {
	n := amount(t, "UMBRA_WORKSPACES", 200)
	defaults(t)
	w := newWorld(t, 1)
	round := max(1, min(n/2, 500))
	made := 0
	some := func() {
		var making sync.WaitGroup
		for c := range 4 {
			making.Go(func() {
				for i := made + c; i < made+round; i += 4 {
					m := w.members[i%len(w.members)]
					a := w.ask(m, "POST", "/tasks", fmt.Sprintf(`{"goal":"idle","kind":"virtual","namespace":["idle","%d"]}`, i), "Content-Type", "application/json")
					if a.err != nil || a.status/100 != 2 {
						t.Errorf("a workspace: %v %d %s", a.err, a.status, a.body)
						return
					}
				}
			})
		}
		making.Wait()
		made += round
		for _, m := range w.members {
			w.drain(m)
			w.undrain(m)
		}
		w.pack()
		vacuumed(w, "VACUUM")
	}
	type sizes struct{ database, objects, memory float64 }
	size := func() (s sizes) {
		for name, bytes := range w.relations() {
			t.Logf("%6d workspaces: %10.0f bytes %s", made, bytes, name)
			s.database += bytes
		}
		for _, m := range w.members {
			s.memory += float64(residentOf(t, m.server.PID()))
		}
		s.objects = float64(len(w.s3.Keys()))
		return s
	}
	for range 4 {
		some()
	}
	first, before := made, size()
	for made < first+n {
		some()
	}
	after, each := size(), float64(made-first)
	requests := w.requests()
	<-time.After(lease * 5)
	requests = w.requests() - requests
	vacuumed(w, "VACUUM FULL")
	least := size()
	figure(t, (after.database-before.database)/each <= 512 && (after.objects-before.objects)/each <= 3,
		"idle workspace, by %.0f of them: %.0f bytes in the database (%.0f where its tables were rewritten), %.2f objects, %.0f bytes of memory, %d store requests in %v (≤ 512 bytes, ≤ 3 objects, no memory, no requests)",
		each, (after.database-before.database)/each, least.database/float64(made), (after.objects-before.objects)/each, (after.memory-before.memory)/each, requests, lease*5)
}

// relations returns the sizes of the cluster's tables, with what belongs to each, and of
// their indexes, but for those that are empty.
func (w *world) relations() map[string]float64 {
	w.t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(w.pair.A.SQL(`SELECT regexp_replace(c.relname, '_[0-9]+', ''), CASE c.relkind WHEN 'i' THEN pg_relation_size(c.oid) ELSE pg_table_size(c.oid) END
		FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i')`)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "|")
		bytes, err := strconv.ParseFloat(text, 64)
		need.NoError(w.t, err)
		all[name] += bytes
	}
	return all
}

// pack packs the records, as a node does of those that nothing changed for ten minutes.
func (w *world) pack() {
	w.t.Helper()
	admin, err := cluster.Look(w.t.Context(), cluster.Options{URL: w.pair.A.URL(w.pair.A.Address(), w.pair.B.Address()), Wait: time.Minute})
	need.NoError(w.t, err)
	defer admin.Close()
	records := admin.Records()
	defer func() { need.NoError(w.t, records.Close()) }()
	for range 2 { // the first call notes the time
		_, err = records.Pack(w.t.Context())
		need.NoError(w.t, err)
	}
}

// vacuumed vacuums the tables by a statement. Removed rows which an older transaction
// still sees would stay: it waits for the end of all that run now.
func vacuumed(w *world, statement string) {
	w.t.Helper()
	next := w.pair.A.SQL("SELECT pg_snapshot_xmax(pg_current_snapshot())")
	need.NoError(w.t, clustertest.Await(time.Minute, func() (bool, error) {
		w.pair.A.SQL("SELECT pg_current_xact_id()")
		return w.pair.A.SQL("SELECT pg_snapshot_xmin(pg_current_snapshot()) >= '"+next+"'::xid8 AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE age(backend_xmin) > age('"+next+"'::xid8::xid)) AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE age(xmin) > age('"+next+"'::xid8::xid)) AND NOT EXISTS (SELECT FROM journal)") == "t", nil
	}))
	w.pair.A.SQL(statement)
}

// TestStoreRequestsFigure writes once a second and counts the requests to the store.
// UMBRA_SECONDS is for how long.
func TestStoreRequestsFigure(t *testing.T) {
	n := amount(t, "UMBRA_SECONDS", 20)
	defaults(t)
	w := newWorld(t, 1)
	owner := w.ownerOf(0)
	w.put(owner, 0, "first")
	before := w.requests()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range n {
		if _, ok := w.put(owner, 0, "f"+strconv.Itoa(i%50)); !ok {
			t.Fatal("a write failed")
		}
		<-tick.C
	}
	rate := float64(w.requests()-before) / float64(n)
	figure(t, rate <= 0.01, "store requests: %.4f a commit, of %d at 1 a second (≤ 0.01)", rate, n)
}

// TestKnownFigure measures the start of a node in a cluster with many workspaces.
// UMBRA_WORKSPACES is how many.
func TestKnownFigure(t *testing.T) {
	n := amount(t, "UMBRA_WORKSPACES", 1000)
	defaults(t)
	w := newWorld(t, 1)
	m := w.members[0]
	again := func() (time.Duration, int64) {
		m.setPaused(true)
		m.server.Stop()
		began := time.Now()
		m.restart()
		took := time.Since(began)
		<-time.After(lease)
		return took, residentOf(t, m.server.PID())
	}
	_, before := again()
	// What the cluster has of a workspace is there so many times, under other IDs.
	id := w.spaces[0].id
	other := fmt.Sprintf("encode(convert_to(lpad(g::text, %d, 'x'), 'UTF8'), 'hex')", len(id))
	swapped := func(column string) string {
		return fmt.Sprintf("decode(replace(encode(%s, 'hex'), '%s', %s), 'hex')", column, hex.EncodeToString([]byte(id)), other)
	}
	w.pair.A.SQL(fmt.Sprintf("INSERT INTO workspace (id, kind, epoch, base_pos) SELECT lpad(g::text, %d, 'x'), kind, epoch, base_pos FROM workspace, generate_series(1, %d) g WHERE id = '%s'", len(id), n, id))
	w.pair.A.SQL(fmt.Sprintf("INSERT INTO record (key, value) SELECT %s, %s FROM record, generate_series(1, %d) g WHERE position('%s'::bytea IN key) > 0 ON CONFLICT DO NOTHING", swapped("key"), swapped("value"), n, id))
	took, after := again()
	figure(t, took <= 2*time.Second && after-before <= 20<<20, "%d workspaces known (%s records): the start took %v, %.1f MB more memory (≤ 2 s, ≤ 20 MB)", n, w.pair.A.SQL("SELECT count(*) FROM record"), took.Round(time.Millisecond), float64(after-before)/(1<<20))
}

// requests counts those that the store got.
func (w *world) requests() (n int) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead} {
		n += w.s3.Requests(method)
	}
	return n
}

// residentOf returns the resident memory of a process, in bytes.
func residentOf(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	need.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	t.Fatal("the process's memory is not known")
	return 0
}
