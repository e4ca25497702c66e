package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// fileSession is a session made over HTTP.
type fileSession struct {
	p  *project
	ID string
	At map[string]any // the answer of POST /api/sessions
}

// session opens one on the project's folder; more are further members of the
// request.
func (p *project) session(t *testing.T, more ...any) *fileSession {
	t.Helper()
	body := map[string]any{"workspaceRoot": p.dir}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	r := p.post(t, "/api/sessions", body).want(t, 201)
	return &fileSession{p: p, ID: r.str(t, "sessionId"), At: r.obj(t)}
}

func (s *fileSession) url(rest string) string { return "/api/sessions/" + s.ID + rest }

// fs is the URL of an operation; params are names and values in turn.
func (s *fileSession) fs(op string, params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	u := s.url("/fs/" + op)
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

func (s *fileSession) get(t *testing.T, op string, params ...string) *answer {
	t.Helper()
	return s.p.call(t, "GET", s.fs(op, params...), nil)
}

// do posts an operation; body is a map, or names and values in turn.
func (s *fileSession) do(t *testing.T, op string, pairs ...any) *answer {
	t.Helper()
	body := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		body[pairs[i].(string)] = pairs[i+1]
	}
	return s.p.post(t, s.fs(op), body)
}

func (s *fileSession) put(t *testing.T, path, data string, header ...string) *answer {
	t.Helper()
	return s.p.call(t, "POST", s.fs("write"), map[string]any{"path": path, "content": data}, header...)
}

func (s *fileSession) delete(t *testing.T, op, path string, params ...string) *answer {
	t.Helper()
	return s.p.call(t, "DELETE", s.fs(op, append([]string{"path", path}, params...)...), nil)
}

// task is the session's task, seen through the tasks dialect.
func (s *fileSession) task(t *testing.T) *taskOf {
	t.Helper()
	id, _ := s.At["taskId"].(string)
	r := s.p.call(t, "GET", "/tasks/"+id, nil).want(t, 200)
	return &taskOf{p: s.p, ID: id, At: r.obj(t)}
}

// refuses holds an error of this dialect's shape.
func (a *answer) refuses(t *testing.T, status int) string {
	t.Helper()
	if a.Status != status {
		t.Errorf("%s: status %d, want %d: %.300s", a.what, a.Status, status, a.Body)
		return ""
	}
	o := a.obj(t)
	text, _ := o["error"].(string)
	if text == "" || !strings.Contains(text, " ") {
		t.Errorf("%s: the error is no sentence: %s", a.what, a.Body)
	}
	for k := range o {
		if k != "error" && k != "unrecorded" {
			t.Errorf("%s: the error has %q: %s", a.what, k, a.Body)
		}
	}
	return text
}

// tagOf is the tag that some bytes must have.
func tagOf(data string) string {
	return `W/"` + object.Hash(object.Blob, []byte(data)).String() + `"`
}

// names lists the paths of a listing.
func (a *answer) names(t *testing.T) []string {
	t.Helper()
	out := []string{}
	for _, e := range a.list(t, "entries") {
		out = append(out, e["path"].(string))
	}
	return out
}

func sameList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// diskIsTip holds that history and folder are the same, file by file. Nothing
// in the folder may be ignored.
func (s *fileSession) diskIsTip(t *testing.T) {
	t.Helper()
	k := s.task(t)
	r := s.p.call(t, "POST", "/workspaces/"+k.str("workspace_id")+"/sync", nil).want(t, 200).obj(t)
	if r["commit"] != nil {
		t.Errorf("the disk was not the tip: %v", r)
	}
	want := strings.Split(harness.Git(t, k.gitDir(), "ls-tree", "-r", "-z", "--format=%(objectmode) %(objectname) %(path)", "refs/umbra/head"), "\x00")
	want = slices.DeleteFunc(want, func(line string) bool { return line == "" })
	var got []string
	err := filepath.WalkDir(s.p.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(s.p.dir, name)
		mode, data := "100644", []byte(nil)
		if e.Type()&fs.ModeSymlink != 0 {
			mode = "120000"
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			data = []byte(target)
		} else if data, err = os.ReadFile(name); err != nil {
			return err
		} else if info, err := e.Info(); err == nil && info.Mode()&0o111 != 0 {
			mode = "100755"
		}
		got = append(got, mode+" "+object.Hash(object.Blob, data).String()+" "+rel)
		return nil
	})
	need.NoError(t, err)
	byPath := func(a, b string) int { return strings.Compare(a[48:], b[48:]) }
	slices.SortFunc(got, byPath)
	slices.SortFunc(want, byPath)
	if !slices.Equal(got, want) {
		t.Errorf("on disk:\n%s\nin history:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	k.fsck(t)
}

// quick sends a request outside of the document's check, from any goroutine.
func (s *fileSession) quick(method, target string, body any, header ...string) (*http.Response, []byte, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return nil, nil, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.p.URL+target, r)
	if err != nil {
		return nil, nil, err
	}
	if _, raw := body.([]byte); body != nil && !raw {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.p.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 500 {
		err = fmt.Errorf("%s %s: %s %s", method, target, res.Status, data)
	}
	return res, data, err
}

// soaking says that the long forms of the tests run.
func soaking() bool { return os.Getenv("UMBRA_SOAK") != "" }
