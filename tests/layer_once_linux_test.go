package tests

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// TestLayerAppliedOnceOverAKill: the server is killed at calls that change the disk while it
// applies a layer. The same request with the same key is answered afterwards as if nothing
// had been, whether the layer was applied by then or not, and so is the next one.
func TestLayerAppliedOnceOverAKill(t *testing.T) {
	need.Tool(t, "strace")
	p := newProject(t, map[string]string{"a": "one\n", "both": "base\n", ".gitignore": "out/\n"})
	want, finished, killed := "", 0, 0
	calls := []string{"renameat", "fdatasync", "fsync"}
	if testing.Short() {
		calls = calls[:2]
	}
	for pass := 0; pass == 0 || pass < 4*len(calls) && (pass < len(calls) || finished == 0); pass++ { // the background syncs as well
		call := calls[pass%len(calls)]
		for n, done := 0, false; !done && n <= 40; n++ {
			got, found := p.appliedTwice(t, call, n)
			if n == 0 {
				if want = cmp.Or(want, got); !strings.Contains(want, `"both","content"`) || !strings.Contains(want, `"pipe","fifo"`) {
					t.Fatal(want)
				}
				continue
			}
			if got != want {
				t.Errorf("killed at %s %d: %s\nwant\n%s", call, n, got, want)
			}
			switch found {
			case "answered":
				done = true
			case "applied":
				finished++
				killed++
			default:
				killed++
			}
		}
	}
	t.Logf("%d kills, %d times the layer was applied then", killed, finished)
	if finished == 0 || killed == finished {
		t.Error("not all happened")
	}
}

// appliedTwice applies a layer, has the server killed at the n-th call of a kind meanwhile,
// if it comes to that, and sends the request again. It describes the answer.
func (p *project) appliedTwice(t *testing.T, call string, n int) (got, found string) {
	t.Helper()
	p.shell(t, "echo one > a; echo base > both; rm -rf out n")
	var l struct{ Layer, Dir string }
	p.post(t, "/layers", map[string]any{"agent": "a", "agent_session": "s", "cwd": p.dir}).want(t, 201).into(t, &l)
	upper := filepath.Join(l.Dir, "upper")
	for name, text := range map[string]string{"a": "two\n", "both": "layer\n", "out/o": "o\n", "n/f": "f\n"} {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(upper, name)), 0o755))
		need.NoError(t, os.WriteFile(filepath.Join(upper, name), []byte(text), 0o644))
	}
	need.NoError(t, syscall.Mkfifo(filepath.Join(upper, "pipe"), 0o644))
	p.shell(t, "echo person > both")
	end := func() {}
	if n > 0 {
		end = killedAt(t, p, call, n)
	}
	body, target, key := `{"exit_code":3}`, "/layers/"+l.Layer+"/apply", "apply "+l.Layer
	req, err := http.NewRequest("POST", p.URL+target, strings.NewReader(body))
	need.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	found = "killed"
	if res, err := http.DefaultClient.Do(req); err == nil {
		if res.Body.Close(); res.StatusCode != 200 {
			t.Errorf("%s %d: the answer is %d", call, n, res.StatusCode)
		}
		found = "answered"
	}
	end()
	p.Kill()
	p.Restart()
	left := p.call(t, "GET", "/layers", nil).want(t, 200)
	if found == "killed" && !strings.Contains(string(left.Body), l.Layer) {
		found = "applied"
	}
	for range 2 {
		a := p.post(t, target, json.RawMessage(body), "Idempotency-Key", key).want(t, 200)
		if found != "killed" && a.head("Idempotent-Replay") != "true" {
			t.Errorf("%s %d: the answer is not marked as a repeat", call, n)
		}
		var x struct {
			CallID       string `json:"call_id"`
			Commit       string
			Entries      []callEntry
			ConflictsRef string           `json:"conflicts_ref"`
			Conflicts    []map[string]any `json:"conflicts"`
			NotApplied   []map[string]any `json:"not_applied"`
			Moved        int
		}
		a.into(t, &x)
		var c struct {
			Status  string
			Commits []string
		}
		p.call(t, "GET", "/calls/"+l.Layer, nil).want(t, 200).into(t, &c)
		if len(c.Commits) != 1 || c.Commits[0] != x.Commit || x.CallID != l.Layer || !strings.HasSuffix(x.ConflictsRef, l.Layer) {
			t.Errorf("%s %d: %+v %s", call, n, c, a.Body)
		}
		list := [][]any{{c.Status, x.Moved, callEnded{Entries: x.Entries}.text(), p.read(t, "a"), p.read(t, "both"), p.read(t, "out/o"), p.read(t, "n/f")}}
		for _, m := range append(x.Conflicts, x.NotApplied...) {
			list = append(list, []any{m["path"], m["reason"], m["blob"]})
		}
		raw, err := json.Marshal(list)
		need.NoError(t, err)
		if now := string(raw); got != "" && now != got {
			t.Errorf("%s %d: a repeat is answered %s\nand then %s", call, n, got, now)
		}
		got = string(raw)
	}
	return got, found
}
