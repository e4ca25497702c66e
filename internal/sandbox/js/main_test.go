package js

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Main(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// folder is a workspace in memory.
type folder map[string]string

func (f folder) ReadFile(_ context.Context, name string) ([]byte, error) {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "/workspace/"), "./")
	if strings.HasPrefix(name, "/") || strings.Contains(name, "..") {
		return nil, errs.New(errs.BadPath, "bad_path", "")
	}
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return nil, errs.New(errs.NotFound, "file_not_found", "")
}

func newPool(t testing.TB, o Options) *Pool {
	p := NewPool(o)
	t.Cleanup(p.Close)
	return p
}

func run(t testing.TB, p *Pool, code string) *Outcome {
	t.Helper()
	out, err := p.Run(context.Background(), Job{Name: "main.ts", Code: code, Timeout: 10 * time.Second})
	need.NoError(t, err)
	return out
}
