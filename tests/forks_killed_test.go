package tests

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A merge of one commit, or by squash, whose server is killed in the middle is there whole or
// not at all, and its own task is not left at work: it would hold up deletions and
// retention, and have what others change on disk.
func TestMergeKilled(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a\n"})
	ws := p.task(t).str("workspace_id")
	fork := p.forks(t, "/workspaces/"+ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "large", "workspace": fork, "goal": "try"}).want(t, 201)
	data := make([]byte, 24<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	p.call(t, "PUT", "/tasks/large/content?path=large", data).want(t, 201)
	own := "/tasks/merge-" + fork
	answered := make(chan int, 1)
	go func() {
		res, err := http.Post(p.URL+"/workspaces/"+fork+"/merge", "application/json", strings.NewReader(`{"as":"squash"}`))
		if err != nil {
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	deadline := time.Now().Add(30 * time.Second)
	for p.call(t, "GET", own, nil).Status == 404 && time.Now().Before(deadline) {
	}
	p.Kill()
	left := 1
	if <-answered == 200 { // it was faster than the kill
		left = 0
	}
	p.Restart()
	if got := p.call(t, "GET", own, nil).want(t, 200).obj(t)["status"]; got != "failed" && got != "completed" {
		t.Errorf("the merge's task is %s", got)
	}
	var dry mergeAnswer
	p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"dry_run": true}).want(t, 200).into(t, &dry)
	if len(dry.Files) != left {
		t.Errorf("a merge would change %v", dry.Files)
	}
	if again := p.post(t, "/workspaces/"+fork+"/merge", map[string]any{}); again.Status != 200 {
		t.Errorf("the merge again: %s", again.Body)
	}
}
