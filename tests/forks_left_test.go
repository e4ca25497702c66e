package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// A client that leaves while its copy is made leaves nothing: neither the directory nor what
// was recorded of it.
func TestForkLeft(t *testing.T) {
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprintf("d%d/f%d", i%30, i)] = "x\n"
	}
	p := newProject(t, files)
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(t.TempDir(), "copy")
	recorded := func() int {
		list, _ := os.ReadDir(filepath.Join(p.DataDir, "workspaces"))
		return len(list)
	}
	before := recorded()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", p.URL+ws+"/forks", strings.NewReader(fmt.Sprintf(`{"kind":"copy","path":%q}`, dir)))
	need.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	go func() {
		defer cancel()
		for ctx.Err() == nil && recorded() == before { // its baseline begins
		}
	}()
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		res.Body.Close()
		t.Log("the copy was made at once")
		return
	}
	eventually(t, func() bool {
		_, err := os.Lstat(dir)
		return err != nil && recorded() == before
	})
	p.forks(t, ws, map[string]any{"kind": "copy", "path": dir})
}
