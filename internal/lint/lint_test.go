package lint

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/sandbox/js"
)

type checker []js.Diagnostic

func (c checker) Check(context.Context, js.Job) ([]js.Diagnostic, error) {
	return c, nil
}

func TestEmbedded(t *testing.T) {
	r, err := Embedded{checker(nil)}.Lint(context.Background(), Text{Name: "a.ts", Code: "1"}, time.Second)
	if err != nil || r.Diagnostics == nil || len(r.Checked) != 1 || r.Checked[0] != "a.ts" {
		t.Errorf("%+v %v", r, err)
	}
}

// Stand-ins for the engines: each says what the real one says of one fault.
func TestExternal(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	const text = "let a = 1\nlet é = a, b = 2\n"
	for kind, says := range map[string]string{
		"deno":    `{"version":1,"diagnostics":[{"code":"no-unused-vars","message":"b is never used","hint":"drop it","range":{"start":{"line":2,"col":11},"end":{"line":2,"col":12}},"filename":"a.ts"}],"errors":[]}`,
		"oxlint":  `{"diagnostics":[{"code":"no-unused-vars","message":"b is never used","help":"drop it","severity":"error","labels":[{"span":{"offset":22,"length":1}}]}]}`,
		"biome":   `note {"diagnostics":[{"category":"no-unused-vars","severity":"error","description":"b is never used","location":{"span":[22,23]}}]}`,
		"biome 2": `{"diagnostics":[{"severity":"error","message":"b is never used","category":"no-unused-vars","location":{"path":"a.ts","start":{"line":2,"column":12},"end":{"line":2,"column":13}},"advices":[]}],"command":"lint"}`,
	} {
		kind, _, _ := strings.Cut(kind, " ")
		script := "#!/bin/sh\ncat <<'END'\n" + says + "\nEND\nexit 1\n"
		need.NoError(t, os.WriteFile(filepath.Join(bin, kind), []byte(script), 0o700))
		x, err := Find(kind)
		need.NoError(t, err)
		r, err := x.Lint(context.Background(), Text{Name: "a.ts", Code: text}, 10*time.Second)
		if err != nil || len(r.Diagnostics) != 1 {
			t.Fatalf("%s: %+v %v", kind, r, err)
		}
		d := r.Diagnostics[0]
		if d.Code != "no-unused-vars" || d.Message != "b is never used" || d.Severity != js.SeverityError || d.Filename != "a.ts" ||
			d.Range != (js.Range{Start: js.Position{Line: 2, Col: 11}, End: js.Position{Line: 2, Col: 12}}) {
			t.Errorf("%s: %+v", kind, d)
		}
	}
	need.NoError(t, os.WriteFile(filepath.Join(bin, "deno"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700))
	x, err := Find("deno")
	need.NoError(t, err)
	if _, err := x.Lint(context.Background(), Text{Name: "a.ts", Code: text}, 200*time.Millisecond); errs.CodeOf(err) != "check_timeout" {
		t.Errorf("%v", err)
	}
	if _, err := Find("eslint"); err == nil {
		t.Error("an engine that is not known")
	}
}
