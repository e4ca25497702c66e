package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"umbra/internal/need"
)

// Of many who write with the same tag exactly one wins.
func TestSessionOneWinner(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0"})
	s := p.session(t)
	rounds := 8
	if soaking() {
		rounds = 200
	}
	current := tagOf("0")
	for round := range rounds {
		var won atomic.Int32
		var winner atomic.Value
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				data := fmt.Sprintf("round %d client %d", round, i)
				body, header := map[string]any{"path": "f", "content": data}, []string{}
				if i%2 == 0 {
					body["ifMatchEtag"] = current
				} else {
					header = []string{"If-Match", current}
				}
				res, out, err := s.quick("POST", s.fs("write"), body, header...)
				switch {
				case err != nil:
					t.Error(err)
				case res.StatusCode == 200:
					won.Add(1)
					winner.Store(tagOf(data))
				case res.StatusCode != 409:
					t.Errorf("%s %s", res.Status, out)
				case res.Header.Get("ETag") == current || len(res.Header.Get("ETag")) != len(current):
					t.Errorf("the loser is told %q", res.Header.Get("ETag"))
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d winners in round %d", won.Load(), round)
		}
		current = winner.Load().(string)
		if got := s.get(t, "stat", "path", "f").str(t, "etag"); got != current {
			t.Fatalf("the file has %s, the winner wrote %s", got, current)
		}
	}
	if n := len(s.task(t).changes(t, "")); n != rounds {
		t.Errorf("%d changes in %d rounds", n, rounds)
	}
	s.diskIsTip(t)
}

// A counter that is read and conditionally written loses nothing.
func TestSessionCounter(t *testing.T) {
	p := newProject(t, map[string]string{"counter": "0"})
	s := p.session(t)
	clients, total := 16, 400
	if soaking() {
		total = 2000
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for done := 0; done < total/clients; {
				res, out, err := s.quick("GET", s.fs("read", "path", "counter"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				var file struct{ Content, ETag string }
				if err := json.Unmarshal(out, &file); err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(file.Content)
				if err != nil {
					t.Errorf("read after %d writes: %v: %s %s", done, err, res.Status, out)
					return
				}
				res, out, err = s.quick("POST", s.fs("write"), map[string]any{"path": "counter", "content": strconv.Itoa(n + 1), "ifMatchEtag": file.ETag})
				switch {
				case err != nil:
					t.Error(err)
					return
				case res.StatusCode == 200:
					done++
				case res.StatusCode != 409:
					t.Errorf("%s %s", res.Status, out)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := p.read(t, "counter"); got != strconv.Itoa(total) {
		t.Errorf("the counter is at %s", got)
	}
	s.diskIsTip(t)
}

// While somebody swaps folders and files for links that lead out, nothing
// outside is read or written.
func TestSessionLinkSwap(t *testing.T) {
	p := newProject(t, map[string]string{"d/f": "inside", "g": "inside"})
	outside := t.TempDir()
	const secret = "the secret outside"
	for _, name := range []string{"f", "g", "n"} {
		need.NoError(t, os.WriteFile(filepath.Join(outside, name), []byte(secret), 0o644))
	}
	s := p.session(t)
	total := 3000
	if soaking() {
		total = 100_000
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swap := func(name, target string, make func(string) error) {
		swapping.Go(func() {
			at := filepath.Join(p.dir, name)
			for {
				select {
				case <-stop:
					return
				default:
				}
				aside := at + "-aside"
				os.Rename(at, aside)
				os.Symlink(target, at)
				os.Remove(at)
				if os.Rename(aside, at) != nil {
					make(at)
				}
			}
		})
	}
	swap("d", outside, func(at string) error {
		os.Mkdir(at, 0o755)
		return os.WriteFile(filepath.Join(at, "f"), []byte("inside"), 0o644)
	})
	swap("g", filepath.Join(outside, "g"), func(at string) error { return os.WriteFile(at, []byte("inside"), 0o644) })

	requests := []func() (string, string, any){
		func() (string, string, any) { return "GET", s.fs("read", "path", "d/f"), nil },
		func() (string, string, any) { return "GET", s.fs("read", "path", "g"), nil },
		func() (string, string, any) { return "GET", s.fs("download", "path", "d/f"), nil },
		func() (string, string, any) { return "GET", s.fs("stat", "path", "d/f"), nil },
		func() (string, string, any) { return "GET", s.fs("list", "path", "d"), nil },
		func() (string, string, any) { return "GET", s.fs("list", "recursive", "true"), nil },
		func() (string, string, any) { return "GET", s.fs("tree", "depth", "5"), nil },
		func() (string, string, any) {
			return "POST", s.fs("write"), map[string]any{"path": "d/f", "content": "inside"}
		},
		func() (string, string, any) {
			return "POST", s.fs("write"), map[string]any{"path": "g", "content": "inside"}
		},
		func() (string, string, any) { return "PUT", s.fs("upload", "path", "d/n"), []byte("inside") },
		func() (string, string, any) {
			return "POST", s.fs("copy"), map[string]any{"from": "d/f", "to": "copy", "overwrite": true}
		},
		func() (string, string, any) {
			return "POST", s.fs("copy"), map[string]any{"from": "d", "to": "c/" + strconv.Itoa(rand.IntN(5))}
		},
		func() (string, string, any) {
			return "POST", s.fs("move"), map[string]any{"from": "copy", "to": "d/n", "overwrite": true}
		},
		func() (string, string, any) {
			return "POST", s.fs("replace"), map[string]any{"path": "d/f", "old_string": "inside", "new_string": "inside2"}
		},
		func() (string, string, any) {
			return "POST", s.fs("mkdir"), map[string]any{"path": "d/made/x", "recursive": true}
		},
		func() (string, string, any) { return "DELETE", s.fs("file", "path", "d/n", "force", "true"), nil },
		func() (string, string, any) {
			return "DELETE", s.fs("dir", "path", "c", "recursive", "true", "force", "true"), nil
		},
	}
	var sent atomic.Int64
	var ok atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for sent.Add(1) <= int64(total) {
				method, target, body := requests[rand.IntN(len(requests))]()
				res, out, err := s.quick(method, target, body)
				if err != nil {
					t.Error(err)
					return
				}
				if bytes.Contains(out, []byte(secret)) || bytes.Contains(out, []byte(tagOf(secret)[3:43])) {
					t.Errorf("%s %s read what is outside: %s", method, target, out)
					return
				}
				if res.StatusCode < 300 {
					ok.Add(1)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	swapping.Wait()
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 3 {
		t.Errorf("outside is %v, %v", entries, err)
	}
	for _, e := range entries {
		if data, err := os.ReadFile(filepath.Join(outside, e.Name())); err != nil || string(data) != secret {
			t.Errorf("outside %s is %q, %v", e.Name(), data, err)
		}
	}
	if ok.Load() == 0 {
		t.Error("no request was answered well")
	}
	k := s.task(t)
	k.sync(t)
	if out := k.git(t, "log", "-p", "--format=", "refs/umbra/head"); strings.Contains(out, secret) {
		t.Error("history holds what is outside")
	}
	k.fsck(t)
}

// Every pair of operations on overlapping paths, at the same time: no failure
// of the server's, and afterwards the disk is the tip.
func TestSessionPairs(t *testing.T) {
	p := newProject(t, nil)
	s := p.session(t)
	type op struct {
		name string
		do   func(i int) (method, target string, body any)
	}
	post := func(name string, body map[string]any) (string, string, any) { return "POST", s.fs(name), body }
	content := func(i int) string { return strings.Repeat(fmt.Sprintln("line", i), 1+i%5) }
	ops := []op{
		{"write in it", func(i int) (string, string, any) {
			return post("write", map[string]any{"path": "a/f", "content": content(i)})
		}},
		{"write deep", func(i int) (string, string, any) {
			return post("write", map[string]any{"path": fmt.Sprintf("a/b/c/%d", i%2), "content": content(i)})
		}},
		{"upload", func(i int) (string, string, any) {
			return "PUT", s.fs("upload", "path", "a/f"), []byte(content(i + 7))
		}},
		{"replace", func(i int) (string, string, any) {
			return post("replace", map[string]any{"path": "a/f", "old_string": "line", "new_string": "row", "allowMultiple": true})
		}},
		{"mkdir", func(i int) (string, string, any) {
			return post("mkdir", map[string]any{"path": "a/b/m", "recursive": true})
		}},
		{"move folder", func(i int) (string, string, any) {
			return post("move", map[string]any{"from": "a", "to": "z", "overwrite": true})
		}},
		{"move folder back", func(i int) (string, string, any) {
			return post("move", map[string]any{"from": "z", "to": "a", "overwrite": true})
		}},
		{"move file", func(i int) (string, string, any) {
			return post("move", map[string]any{"from": "a/f", "to": "a/b/f", "overwrite": true})
		}},
		{"move inner out", func(i int) (string, string, any) { return post("move", map[string]any{"from": "a/b", "to": "y"}) }},
		{"copy folder", func(i int) (string, string, any) {
			return post("copy", map[string]any{"from": "a", "to": fmt.Sprint("k", i)})
		}},
		{"copy into it", func(i int) (string, string, any) {
			return post("copy", map[string]any{"from": "y", "to": "a/b", "overwrite": true})
		}},
		{"symlink", func(i int) (string, string, any) {
			return post("symlink", map[string]any{"path": fmt.Sprint("a/l", i%2), "target": "f"})
		}},
		{"delete file", func(i int) (string, string, any) { return "DELETE", s.fs("file", "path", "a/f", "force", "true"), nil }},
		{"delete folder", func(i int) (string, string, any) {
			return "DELETE", s.fs("dir", "path", "a", "recursive", "true", "force", "true"), nil
		}},
		{"list", func(i int) (string, string, any) { return "GET", s.fs("list", "recursive", "true"), nil }},
		{"tree", func(i int) (string, string, any) { return "GET", s.fs("tree", "depth", "6"), nil }},
		{"read", func(i int) (string, string, any) { return "GET", s.fs("read", "path", "a/f"), nil }},
	}
	times := 4
	if soaking() {
		times = 40
	}
	for i := range ops {
		for j := i; j < len(ops); j++ {
			var wg sync.WaitGroup
			for _, o := range []op{ops[i], ops[j]} {
				wg.Go(func() {
					for n := range times {
						method, target, body := o.do(n)
						if res, out, err := s.quick(method, target, body); err != nil {
							t.Errorf("%s beside %s: %v", ops[i].name, ops[j].name, err)
						} else if res.StatusCode == 412 || res.StatusCode == 500 {
							t.Errorf("%s beside %s: %s %s", ops[i].name, ops[j].name, res.Status, out)
						}
					}
				})
			}
			wg.Wait()
			// What is gone comes back for the next pair.
			s.put(t, "a/f", "line again")
			s.put(t, "a/b/c/0", "again")
		}
		k := s.task(t)
		if r := p.call(t, "POST", "/workspaces/"+k.str("workspace_id")+"/sync", nil).want(t, 200).obj(t); r["commit"] != nil {
			t.Fatalf("after the pairs of %s the disk was not the tip: %v", ops[i].name, r)
		}
		for n := range times {
			s.delete(t, "dir", fmt.Sprint("k", n), "recursive", "true", "force", "true")
		}
		s.delete(t, "dir", "y", "recursive", "true", "force", "true")
	}
	s.diskIsTip(t)
}

// pattern is endless data that does not compress away.
type pattern struct{ state uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.state = p.state*6364136223846793005 + 1442695040888963407
		b[i] = byte(p.state >> 56)
	}
	return len(b), nil
}

// A large upload and download take no memory, with and without a length.
func TestSessionLargeUpload(t *testing.T) {
	p := newProject(t, nil)
	s := p.session(t)
	size := int64(48 << 20)
	if soaking() {
		size = 1 << 30
	}
	peak := func() int64 {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		need.NoError(t, err)
		_, rest, _ := strings.Cut(string(raw), "VmHWM:")
		n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		need.NoError(t, err)
		return n << 10
	}
	before := peak()
	var tag string
	for _, known := range []bool{true, false} {
		req, err := http.NewRequest("PUT", p.URL+s.fs("upload", "path", fmt.Sprint("large-", known)), io.LimitReader(&pattern{}, size))
		need.NoError(t, err)
		if known {
			req.ContentLength = size
		}
		res, err := p.Client.Do(req)
		need.NoError(t, err)
		out, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 201 {
			t.Fatalf("%s %s", res.Status, out)
		}
		if tag != "" && res.Header.Get("ETag") != tag {
			t.Errorf("the same bytes have the tags %s and %s", tag, res.Header.Get("ETag"))
		}
		tag = res.Header.Get("ETag")
	}
	res, err := p.Client.Get(p.URL + s.fs("download", "path", "large-true"))
	need.NoError(t, err)
	n, err := io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if err != nil || n != size || res.Header.Get("ETag") != tag {
		t.Errorf("%d bytes, %s, %v", n, res.Header.Get("ETag"), err)
	}
	used := peak()
	t.Logf("peak memory %d MiB, %d MiB before, for %d MiB", used>>20, before>>20, size>>20)
	if used-before > 64<<20 {
		t.Errorf("the server used %d MiB, %d MiB before", used>>20, before>>20)
	}
}
