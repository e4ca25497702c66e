package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/tests/harness"
)

// crowd is writers and readers that a plain balancer spreads over the nodes: where a
// node refuses a connection, or closes one without an answer, the next one gets the
// request (RFC 9110, section 9.2.2: both methods are idempotent). No answer is asked for
// again.
type crowd struct {
	w    *world
	urls []string
	turn atomic.Uint64
	done atomic.Uint64
	news chan struct{} // has an element after an answer

	mu      sync.Mutex
	failed  []string
	longest time.Duration
}

// ask sends one request.
func (c *crowd) ask(client *http.Client, method, target string, body []byte) {
	began := time.Now()
	text := "no node takes connections"
	first := c.turn.Add(1)
	for i := range c.urls {
		at := c.urls[(first+uint64(i))%uint64(len(c.urls))]
		req, err := http.NewRequest(method, at+target, bytes.NewReader(body))
		if err != nil {
			c.w.t.Error(err)
			return
		}
		res, err := client.Do(req)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
			continue
		}
		if err == nil {
			var raw []byte
			raw, err = io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil && res.StatusCode < 300 {
				c.mu.Lock()
				c.longest = max(c.longest, time.Since(began))
				c.mu.Unlock()
				c.done.Add(1)
				select {
				case c.news <- struct{}{}:
				default:
				}
				return
			}
			text = fmt.Sprintf("%d %s", res.StatusCode, raw)
		}
		if err != nil {
			text = err.Error()
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf("%s %s after %v: %s", method, target, time.Since(began).Round(time.Millisecond), text))
}

// run starts the clients, each of which pauses between two requests; stop ends them.
func (c *crowd) run(writers, readers int, pause time.Duration) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for i := range writers + readers {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: 3 * wait}
			defer client.CloseIdleConnections()
			target := "/tasks/" + c.w.spaces[i%len(c.w.spaces)].task + "/content?path=f" + strconv.Itoa(i%writers)
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				case <-time.After(pause):
				}
				if i < writers {
					c.ask(client, http.MethodPut, target, []byte(strings.Repeat(fmt.Sprintf("%d of %d\n", n, i), 200)))
				} else {
					c.ask(client, http.MethodGet, "/workspaces/"+c.w.spaces[i%len(c.w.spaces)].id+"/log?limit=1", nil)
				}
			}
		})
	}
	return func() {
		close(ended)
		wg.Wait()
	}
}

// await waits until so many more requests were answered.
func (c *crowd) await(more uint64) {
	c.w.t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for until := c.done.Load() + more; c.done.Load() < until; {
		select {
		case <-c.news:
		case <-timer.C:
			c.w.t.Fatal("no request is answered any more")
		}
	}
}

// TestDrain has nodes drained, and stopped, next to writers and readers: no request
// fails. With UMBRA_SOAK they are 64 and 16, for quiet processors. UMBRA_DRAIN_MS is how
// long a drain may take; not set: any time, since it says nothing on busy processors.
// UMBRA_PAUSE_MS is how long each client waits before a request: without, they alone keep a
// small machine busy.
func TestDrain(t *testing.T) {
	defaults(t)
	writers, readers, spaces := 12, 4, 6
	if os.Getenv("UMBRA_SOAK") != "" {
		writers, readers, spaces = 64, 16, 12
	}
	w := newWorld(t, spaces)
	c := &crowd{w: w, news: make(chan struct{}, 1)}
	for _, m := range w.members {
		c.urls = append(c.urls, m.server.URL)
	}
	pause, _ := strconv.Atoi(os.Getenv("UMBRA_PAUSE_MS"))
	stop := c.run(writers, readers, time.Duration(pause)*time.Millisecond)
	c.await(200)

	var took []time.Duration
	for _, m := range w.members {
		took = append(took, w.drain(m))
		c.await(100)
		w.undrain(m)
		c.await(100)
	}
	m := w.members[1]
	began := time.Now()
	m.server.Stop()
	stopped := time.Since(began)
	c.await(100)
	stop()
	t.Logf("drains took %v, the stop %v; %d requests, the longest %v", took, stopped.Round(time.Millisecond), c.done.Load(), c.longest.Round(time.Millisecond))
	bound, err := strconv.Atoi(os.Getenv("UMBRA_DRAIN_MS"))
	if worst := slices.Max(took); err == nil && worst > time.Duration(bound)*time.Millisecond {
		t.Errorf("a drain took %v", worst)
	}
	if len(c.failed) > 0 {
		t.Errorf("%d requests failed:\n%s", len(c.failed), strings.Join(c.failed, "\n"))
	}
}

// drain has a node hand its workspaces over, and returns how long that took.
func (w *world) drain(m *member) time.Duration {
	w.t.Helper()
	status, out, errOut := harness.Run(w.t, w.verbs(), "cluster", "drain", m.name, "--json")
	var drained struct {
		Left []string
		Took int64 `json:"took_ms"`
	}
	if err := json.Unmarshal([]byte(out), &drained); err != nil || status != 0 || len(drained.Left) > 0 {
		w.t.Fatalf("drain %s: status %d, %s%s", m.name, status, out, errOut)
	}
	return time.Duration(drained.Took) * time.Millisecond
}

// undrain lets a node take workspaces again.
func (w *world) undrain(m *member) {
	w.t.Helper()
	if status, _, errOut := harness.Run(w.t, w.verbs(), "cluster", "drain", m.name, "--undo"); status != 0 {
		w.t.Fatalf("undo: %s", errOut)
	}
}

// verbs is the environment of verbs about the cluster, on links that no fault cuts.
func (w *world) verbs() []string {
	return append(blobtest.Credentials(), "UMBRA_CLUSTER_URL="+w.pair.A.URL(w.pair.A.Address(), w.pair.B.Address()),
		"UMBRA_CLUSTER_BLOBS="+blobtest.At(w.s3.URL, "prod"))
}
