package tests

import (
	"strings"
	"testing"
)

// TestBlameRejected holds that lines and files which a rejection brought back belong to
// who wrote them, as after every revert, and that rejecting another task's work later
// leaves them.
func TestBlameRejected(t *testing.T) {
	p := newProject(t, map[string]string{"f": numbered(20), "gone": "x\ny\n"})
	a, b := p.task(t), p.task(t)
	b.put(t, "f", strings.Replace(numbered(20), "line 5\n", "five\n", 1))
	p.call(t, "DELETE", b.file("gone"), nil).want(t, 200)
	p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	for _, name := range []string{"f", "gone"} {
		var out struct {
			Ranges []struct {
				Source string
				Via    any
			}
		}
		p.call(t, "GET", "/workspaces/"+b.str("workspace_id")+"/blame?path="+name, nil).want(t, 200).into(t, &out)
		for _, r := range out.Ranges {
			if r.Source != "baseline" {
				t.Errorf("%s: %+v", name, out)
			}
		}
	}
	a.put(t, "f", strings.Replace(numbered(20), "line 5\n", "of a\n", 1))
	b.put(t, "f", strings.Replace(strings.Replace(numbered(20), "line 5\n", "of a\n", 1), "line 15\n", "of b\n", 1))
	p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	if got := p.read(t, "f"); got != numbered(20) {
		t.Errorf("%q", got)
	}
}
