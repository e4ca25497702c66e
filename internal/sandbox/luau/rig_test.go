package luau

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engineFor gives a test an engine. The compiled interpreter is kept for the
// next test, with other temporary files.
func engineFor(t testing.TB) *Engine {
	t.Helper()
	if !Embedded() {
		need.Missing(t, ErrNotEmbedded.Error())
	}
	e := New(Options{CacheDir: filepath.Join(os.TempDir(), "umbra-luau-test")})
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	need.NoError(t, e.Prepare(context.Background()))
	return e
}

func run(t testing.TB, e *Engine, source string, functions ...Function) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := e.Run(ctx, Program{Source: source, Functions: functions})
	if err != nil {
		t.Fatalf("%s\n%v", source, err)
	}
	return out
}
