package sessions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/sessions"
	"umbra/internal/need"
	"umbra/internal/session"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// server is the whole HTTP side on a data directory of its own, in process.
func server(t testing.TB) *httptest.Server {
	t.Helper()
	must := func(err error) {
		t.Helper()
		need.NoError(t, err)
	}
	ctx, data := context.Background(), t.TempDir()
	db, err := state.Open(filepath.Join(data, "state.db"))
	must(err)
	answers, err := state.OpenAnswers(db, filepath.Join(data, "answers.log"))
	must(err)
	m, err := workspaces.NewManager(workspaces.Options{DataDir: data, Records: &workspaces.MemRecords{}})
	must(err)
	must(os.Mkdir(filepath.Join(data, "tasks"), 0o700))
	files, err := vfs.OS(filepath.Join(data, "tasks"))
	must(err)
	tasks, err := task.New(ctx, task.Options{Workspaces: m, State: db, FS: files, Dir: data})
	must(err)
	ses, err := session.New(ctx, session.Options{State: db, Tasks: tasks, Workspaces: m})
	must(err)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	h, err := httpapi.New(httpapi.Options{Version: "test", Log: log, MaxJSON: 1 << 20, Answers: answers}, sessions.New(ses, tasks, m, sessions.Limits{Write: 1 << 20, Upload: 1 << 30}))
	must(err)
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.Close()
		err := ses.Close()
		tasks.Close()
		must(errors.Join(err, m.Close(ctx), files.Close(), answers.Close(), db.Close()))
	})
	return srv
}

func openSession(t testing.TB, srv *httptest.Server, dir string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"workspaceRoot": dir})
	need.NoError(t, err)
	res, err := srv.Client().Post(srv.URL+"/api/sessions", "application/json", bytes.NewReader(body))
	need.NoError(t, err)
	defer res.Body.Close()
	var o struct{ SessionID string }
	if err := json.NewDecoder(res.Body).Decode(&o); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status, err)
	}
	return srv.URL + "/api/sessions/" + o.SessionID + "/fs"
}

func fetch(t testing.TB, c *http.Client, url string) []byte {
	t.Helper()
	res, err := c.Get(url)
	need.NoError(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return data
}

// BenchmarkRead compares the read of a small file with gin's own static files.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "src/lib"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "src/lib/small.txt"), bytes.Repeat([]byte("hello world\n"), 100), 0o644); err != nil {
		b.Fatal(err)
	}
	gin.SetMode(gin.ReleaseMode)
	static := gin.New()
	static.Static("/s", dir)
	peer := httptest.NewServer(static)
	defer peer.Close()
	srv := server(b)
	fs := openSession(b, srv, dir)
	for name, url := range map[string]string{"gin static": peer.URL + "/s/src/lib/small.txt", "read": fs + "/read?path=src/lib/small.txt", "download": fs + "/download?path=src/lib/small.txt"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fetch(b, srv.Client(), url)
			}
		})
	}
}

// BenchmarkList compares listings with os.ReadDir and a stat of each.
func BenchmarkList(b *testing.B) {
	flat, deep := b.TempDir(), b.TempDir()
	for i := range 50_000 {
		if err := os.WriteFile(filepath.Join(flat, fmt.Sprint("file-", i*7919%50_000, ".txt")), []byte("x"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 5000 {
		d := filepath.Join(deep, fmt.Sprintf("d%d/e%d/s%d", i%10, i%100, i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			b.Fatal(err)
		}
		for k := range 20 {
			if err := os.Link(filepath.Join(flat, "file-1.txt"), filepath.Join(d, fmt.Sprint("file", k, ".go"))); err != nil {
				b.Fatal(err)
			}
		}
	}
	srv := server(b)
	pages := func(url string, want int) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				n := 0
				for page := 1; n < want; page++ {
					got := bytes.Count(fetch(b, srv.Client(), fmt.Sprint(url, "&page_size=10000&page=", page)), []byte(`"name"`))
					if got == 0 {
						b.Fatal(n)
					}
					n += got
				}
			}
			b.ReportMetric(float64(want)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		}
	}
	fs := openSession(b, srv, flat)
	b.Run("50k os.ReadDir and a stat", func(b *testing.B) {
		for b.Loop() {
			entries, err := os.ReadDir(flat)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range entries {
				if _, err := os.Lstat(filepath.Join(flat, e.Name())); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("50k all pages", pages(fs+"/list?path=.", 50_000))
	b.Run("50k first page", func(b *testing.B) {
		for b.Loop() {
			fetch(b, srv.Client(), fs+"/list?page_size=10000")
		}
	})
	fs = openSession(b, srv, deep)
	b.Run("105k recursive, all pages", pages(fs+"/list?recursive=true", 105_110))
	b.Run("105k recursive, first page", func(b *testing.B) {
		for b.Loop() {
			fetch(b, srv.Client(), fs+"/list?recursive=true")
		}
		b.ReportMetric(105_110*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
}
