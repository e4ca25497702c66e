package cluster

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// wait is cluster.wait of the nodes under test, and lease their lease.
var wait, lease = 4 * time.Second, time.Second

// member is a node whose links to everything lead through the test.
type member struct {
	name    string
	server  *harness.Server
	engines []*clustertest.Link // to both servers of PostgreSQL
	store   *clustertest.Link   // to the object store
	front   *clustertest.Link   // to it, from other nodes

	mu     sync.RWMutex
	paused bool // it is stopped by a signal, or not there
}

// world is three nodes, what they stand on, and what clients saw of them.
type world struct {
	t       *testing.T
	pair    *clustertest.Pair
	s3      *blobtest.Server
	members []*member
	spaces  []space
	client  *http.Client
	start   time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	writes  map[string]*written // by value
	reads   map[string]int      // how often each kind of answer came
}

// space is a workspace with a task on it.
type space struct{ id, task string }

// written is what is known of a write.
type written struct {
	space    int
	commit   string // acknowledged with it
	seq      uint64
	refused  bool
	key      string
	attempts int
}

// clients returns a world without nodes.
func clients(t *testing.T) *world {
	w := &world{t: t, start: time.Now(), writes: map[string]*written{}, reads: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 3 * wait}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// open makes workspaces with a task on each.
func (w *world) open(spaces int) {
	w.t.Helper()
	for i := range spaces {
		m := w.members[i%len(w.members)]
		var made struct {
			ID        string `json:"task_id"`
			Workspace string `json:"workspace_id"`
		}
		body := fmt.Sprintf(`{"goal":"faults","kind":"virtual","namespace":["fault","%d"]}`, i)
		var last *answer
		// On a busy machine a node that has just started may be without its lease.
		err := clustertest.Await(time.Minute, func() (bool, error) {
			last = w.ask(m, "POST", "/tasks", body, "Content-Type", "application/json", "Idempotency-Key", "open-"+strconv.Itoa(i))
			if last.status != http.StatusCreated {
				return false, nil
			}
			return true, json.Unmarshal(last.body, &made)
		})
		if err != nil {
			w.t.Fatalf("workspace %d: %v: %d %s %v", i, err, last.status, last.body, last.err)
		}
		w.spaces = append(w.spaces, space{id: made.Workspace, task: made.ID})
	}
}

// restart starts a node again that was killed, or has stopped.
func (m *member) restart() {
	m.server.Restart()
	m.front.Retarget(strings.TrimPrefix(m.server.Address, "http://"))
	m.setPaused(false)
}

// engineLink is the node's link to one of the two servers of PostgreSQL.
func (m *member) engineLink(s *clustertest.Server) *clustertest.Link {
	if s.Name == "a" {
		return m.engines[0]
	}
	return m.engines[1]
}

// after returns another node than m.
func (w *world) after(m *member) *member {
	return w.members[(slices.Index(w.members, m)+1)%len(w.members)]
}

func (m *member) setPaused(paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = paused
}

// url returns the node's own address, and whether a client should try it.
func (m *member) url() (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.server.URL, !m.paused
}

// any returns a node that is not known to be away.
func (w *world) any() *member {
	for {
		m := w.members[rand.IntN(len(w.members))]
		if _, up := m.url(); up {
			return m
		}
		<-time.After(5 * time.Millisecond)
	}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
	unsent bool // nothing was sent: no connection
}

func (a *answer) code() string {
	var e struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(a.body, &e)
	return e.Error
}

func (w *world) ask(m *member, method, target, body string, header ...string) *answer {
	url, _ := m.url()
	req, err := http.NewRequest(method, url+target, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	// The client must not send again by itself what may have been done: its last error
	// would say that nothing was sent.
	req.GetBody = nil
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		var op *net.OpError
		return &answer{err: err, unsent: errors.As(err, &op) && op.Op == "dial"}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return &answer{status: res.StatusCode, header: res.Header, body: data, err: err}
}

// register is a file of a workspace.
type register struct {
	name, value string
	write       bool
}

var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(register).name
			by[name] = append(by[name], op)
		}
		for _, list := range by {
			parts = append(parts, list)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if in := input.(register); in.write {
			return true, in.value
		}
		return output == state, state
	},
}

// never is the end of an operation whose outcome is unknown.
const never = int64(1) << 62

// notDone are the codes of answers that say that nothing was done.
var notDone = []string{"not_owner", "owner_moving", "engine_unavailable", "replication_off", "blobs_unavailable", "stopping"}

func (w *world) write(client, at int, name, value, key string) {
	w.writeTo(w.any, client, at, name, value, key)
}

// writeAt and readAt ask one node.
func (w *world) writeAt(m *member, client, at int, name, value, key string) {
	w.writeTo(func() *member { return m }, client, at, name, value, key)
}

func (w *world) writeTo(any func() *member, client, at int, name, value, key string) {
	s := w.spaces[at]
	target := "/tasks/" + s.task + "/content?path=" + name
	var header []string
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}
	op := porcupine.Operation{ClientId: client, Input: register{name: s.id + "/" + name, value: value, write: true}, Call: int64(time.Since(w.start)), Return: never}
	rec := &written{space: at, key: key}
	// One with a key is sent until it is known what became of it.
	for deadline := time.Now().Add(20 * time.Second); ; {
		a := w.ask(any(), "PUT", target, value, header...)
		if a.unsent && rec.attempts == 0 {
			return
		}
		if !a.unsent {
			rec.attempts++
		}
		var done struct {
			Commit string `json:"commit"`
		}
		switch {
		case a.err == nil && a.status/100 == 2:
			if err := json.Unmarshal(a.body, &done); err != nil || done.Commit == "" {
				w.t.Errorf("a write's answer: %v %s", err, a.body)
			}
			rec.commit = done.Commit
			rec.seq, _ = strconv.ParseUint(a.header.Get("Umbra-Seq"), 10, 64)
			op.Return = int64(time.Since(w.start))
		case a.err == nil && a.status == http.StatusServiceUnavailable && slices.Contains(notDone, a.code()):
			rec.refused = rec.attempts == 1
		case a.err == nil && a.status == http.StatusServiceUnavailable && a.code() == "outcome_unknown":
		case a.err == nil:
			w.t.Errorf("a write was answered %d %s", a.status, a.body)
		}
		if rec.commit != "" || key == "" || rec.refused || time.Now().After(deadline) {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes[value] = rec
	if !rec.refused {
		w.history = append(w.history, op)
	}
}

func (w *world) read(client, at int, name string) { w.readAt(w.any(), client, at, name) }

func (w *world) readAt(m *member, client, at int, name string) {
	s := w.spaces[at]
	call := int64(time.Since(w.start))
	a := w.ask(m, "GET", "/tasks/"+s.task+"/content?path="+name, "")
	end := int64(time.Since(w.start))
	w.mu.Lock()
	defer w.mu.Unlock()
	value := string(a.body)
	switch {
	case a.err != nil:
		w.reads["error"]++
		return
	case a.status == http.StatusNotFound && a.code() == "file_not_found":
		value = ""
	case a.status == http.StatusServiceUnavailable:
		w.reads[a.code()]++
		return
	case a.status != http.StatusOK:
		w.t.Errorf("a read was answered %d %s", a.status, a.body)
		return
	}
	if stale := a.header.Get("Umbra-Stale"); stale != "" {
		w.reads["stale"]++
		return
	}
	w.reads["ok"]++
	w.history = append(w.history, porcupine.Operation{ClientId: client, Input: register{name: s.id + "/" + name}, Output: value, Call: call, Return: end})
}

// load runs clients until ended is closed.
func (w *world) load(clients int, ended <-chan struct{}) *sync.WaitGroup {
	var working sync.WaitGroup
	for c := range clients {
		working.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Millisecond):
				}
				at, name := rand.IntN(len(w.spaces)), fmt.Sprintf("k%d", rand.IntN(3))
				if rand.IntN(3) == 0 {
					w.read(c, at, name)
					continue
				}
				value, key := fmt.Sprintf("%d-%d\n", c, i), ""
				if rand.IntN(2) == 0 {
					key = "key-" + value[:len(value)-1]
				}
				w.write(c, at, name, value, key)
			}
		})
	}
	return &working
}

// followed is what a client of a workspace's events saw.
type followed struct {
	mu     sync.Mutex
	ids    []uint64
	values map[uint64]string // commits
	at     string            // where the client is, since when, and whether it was answered
}

func (f *followed) set(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = time.Now().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
}

func (f *followed) from() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// follow reads a workspace's events from any node, and goes on at another when the
// stream ends, until ended is closed.
func (w *world) follow(at int, f *followed, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		default:
		}
		w.stream(at, f.last(), f, ended)
		<-time.After(20 * time.Millisecond)
	}
}

// last is the newest event that came; 0: none did.
func (f *followed) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ids) == 0 {
		return 0
	}
	return f.ids[len(f.ids)-1]
}

func (w *world) stream(at int, after uint64, f *followed, ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	m := w.any()
	url, _ := m.url()
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/workspaces/"+w.spaces[at].id+"/stream", nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Last-Event-ID", strconv.FormatUint(after, 10))
	f.set("asks %s after %d", m.name, after)
	res, err := (&http.Client{Transport: w.client.Transport}).Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	f.set("has %d of %s after %d", res.StatusCode, m.name, after)
	if res.StatusCode != http.StatusOK {
		return
	}
	id := uint64(0)
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "id:"):
			id, _ = strconv.ParseUint(strings.TrimSpace(line[3:]), 10, 64)
		case strings.HasPrefix(line, "data:") && id > 0:
			var e struct {
				Seq    uint64 `json:"seq"`
				Commit string `json:"commit"`
			}
			if err := json.Unmarshal([]byte(line[5:]), &e); err == nil && e.Seq == id {
				f.mu.Lock()
				f.ids = append(f.ids, id)
				f.values[id] = e.Commit
				f.mu.Unlock()
			}
		case line == "":
			id = 0
		}
	}
}

// entry is a line of a workspace's log.
type entry struct {
	Seq    uint64 `json:"seq"`
	Commit string `json:"commit"`
	Path   string `json:"path"`
	Hash   string `json:"after_hash"`
}

// log reads a workspace's log at a node, the oldest first. It waits while the node
// cannot answer.
func (w *world) log(m *member, at int) []entry {
	w.t.Helper()
	var list []entry
	for next := ""; ; {
		var page struct {
			Entries []entry `json:"entries"`
			Next    *string `json:"next"`
		}
		target := "/workspaces/" + w.spaces[at].id + "/log?limit=1000" + next
		if err := clustertest.Await(30*time.Second, func() (bool, error) {
			a := w.ask(m, "GET", target, "")
			if a.err != nil || a.status != http.StatusOK || a.header.Get("Umbra-Stale") != "" {
				return false, fmt.Errorf("%s: %v %d %s", target, a.err, a.status, a.body)
			}
			return true, json.Unmarshal(a.body, &page)
		}); err != nil {
			w.t.Fatalf("%s: %v", m.name, err)
		}
		list = append(list, page.Entries...)
		if page.Next == nil || *page.Next == "" {
			break
		}
		next = "&after=" + *page.Next
	}
	slices.Reverse(list)
	return list
}

// check compares what clients saw with what every node has.
func (w *world) check(events []*followed) {
	w.t.Helper()
	for at := range w.spaces {
		logs := make([][]entry, len(w.members))
		for i, m := range w.members {
			logs[i] = w.log(m, at)
			if !slices.Equal(logs[i], logs[0]) {
				w.t.Errorf("workspace %d: %s has %d entries, %s has %d, or others", at, m.name, len(logs[i]), w.members[0].name, len(logs[0]))
			}
		}
		w.checkLog(at, logs[0])
		w.checkEvents(at, logs[0], events[at])
		var tips []string
		for _, m := range w.members {
			tips = append(tips, w.clone(m, at))
		}
		if len(slices.Compact(slices.Clone(tips))) != 1 {
			w.t.Errorf("workspace %d: the clones have the tips %v", at, tips)
		}
	}
	if result := porcupine.CheckOperationsTimeout(registers, w.history, time.Minute); result != porcupine.Ok {
		w.t.Errorf("%d operations are not linearizable: %v", len(w.history), result)
		w.explain()
	}
	w.t.Logf("%d writes, reads %v", len(w.writes), w.reads)
}

// explain prints the registers whose operations have no order.
func (w *world) explain() {
	for _, part := range registers.Partition(w.history) {
		if porcupine.CheckOperationsTimeout(registers, part, 10*time.Second) == porcupine.Ok {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		// The shortest beginning that has none.
		n, _ := slices.BinarySearchFunc(part, 0, func(op porcupine.Operation, _ int) int {
			i := slices.IndexFunc(part, func(o porcupine.Operation) bool { return o == op })
			if porcupine.CheckOperationsTimeout(registers, part[:i+1], 5*time.Second) == porcupine.Ok {
				return -1
			}
			return 1
		})
		for _, op := range part[max(0, n-12):min(len(part), n+4)] {
			in := op.Input.(register)
			what := fmt.Sprintf("read %q", op.Output)
			if in.write {
				what = fmt.Sprintf("write %q %+v", in.value, *w.writes[in.value])
			}
			w.t.Logf("%s: %v to %v: %s", in.name, time.Duration(op.Call).Round(100*time.Microsecond), time.Duration(op.Return).Round(100*time.Microsecond), what)
		}
	}
}

func (w *world) checkLog(at int, log []entry) {
	found := map[string]entry{}
	for i, e := range log {
		if i > 0 && e.Seq != log[i-1].Seq+1 {
			w.t.Errorf("workspace %d: commit %d comes after %d", at, e.Seq, log[i-1].Seq)
		}
		if e.Hash == "" {
			continue
		}
		if _, twice := found[e.Hash]; twice {
			w.t.Errorf("workspace %d: %s was written twice", at, e.Hash)
		}
		found[e.Hash] = e
	}
	for value, rec := range w.writes {
		if rec.space != at {
			continue
		}
		sum := sha256.Sum256([]byte(value))
		e, there := found["sha256:"+hex.EncodeToString(sum[:])]
		switch {
		case rec.commit != "" && !there:
			w.t.Errorf("workspace %d: %q was acknowledged as %d %s and is lost", at, value, rec.seq, rec.commit)
		case rec.commit != "" && (e.Commit != rec.commit || rec.seq != 0 && e.Seq != rec.seq):
			w.t.Errorf("workspace %d: %q was acknowledged as %d %s and is %d %s", at, value, rec.seq, rec.commit, e.Seq, e.Commit)
		case rec.refused && there:
			w.t.Errorf("workspace %d: %q was refused and is there", at, value)
		}
	}
}

// checkEvents holds that a client that followed had each commit once, in order.
func (w *world) checkEvents(at int, log []entry, f *followed) {
	commits := map[uint64]string{}
	for _, e := range log {
		commits[e.Seq] = e.Commit
	}
	if n := len(f.ids); n == 0 || f.ids[0] != 1 {
		w.t.Errorf("workspace %d: the events do not begin with the first", at)
	}
	for i, id := range f.ids {
		if i > 0 && id != f.ids[i-1]+1 {
			w.t.Errorf("workspace %d: event %d came after %d", at, id, f.ids[i-1])
		}
		if want := commits[id]; want != "" && f.values[id] != want {
			w.t.Errorf("workspace %d: event %d was of %s, the log has %s", at, id, f.values[id], want)
		}
	}
}

// clone clones a workspace from a node, checks it, and returns its tip.
func (w *world) clone(m *member, at int) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	url, _ := m.url()
	harness.Git(w.t, "", "clone", "-q", "--mirror", url+"/git/"+w.spaces[at].id+".git", dir)
	if out, err := harness.TryGit(w.t, dir, "fsck", "--strict", "--full", "--no-progress"); err != nil || strings.TrimSpace(out) != "" {
		w.t.Errorf("%s: fsck of workspace %d: %v %s", m.name, at, err, out)
	}
	return strings.TrimSpace(harness.Git(w.t, dir, "rev-parse", "refs/heads/shadow"))
}

// kill ends a node as a power failure of its machine does, or stops it for a while.
func (w *world) kill(m *member) {
	m.setPaused(true)
	m.server.Kill()
}

func (w *world) signal(m *member, sig syscall.Signal) {
	m.setPaused(sig == syscall.SIGSTOP)
	m.server.Signal(sig)
}
