package main

import (
	"encoding/json"
	"strings"
	"testing"

	"umbra/internal/client"
	"umbra/internal/need"
	"umbra/internal/render"
)

// TestElsewhereMeanwhile: of workspaces of other nodes one moves on twice, one was deleted and
// one is refused.
func TestElsewhereMeanwhile(t *testing.T) {
	asked := map[string]int{}
	answer := func(id, body string, into any) ([]byte, error) {
		asked[id]++
		code := map[string]string{"moves": "owner_moving", "gone": "workspace_not_found", "refused": "forbidden"}[id]
		if code != "" && (id != "moves" || asked[id] < 3) {
			return nil, &client.Error{Code: code}
		}
		return []byte(body), json.Unmarshal([]byte(body), into)
	}

	done := render.Collected{Elsewhere: []string{"moves", "gone", "refused", "inside"}}
	raw, err := others(&done, []byte(`{"workspaces":[{"workspace":"here"}],"freed_bytes":0}`), func(id string, into *render.Collected) ([]byte, error) {
		if id == "inside" {
			return answer(id, `{"workspaces":[{"workspace":"inside","error":"owner_moving","disk_bytes":7}]}`, into)
		}
		return answer(id, `{"workspaces":[{"workspace":"moves"}],"freed_bytes":3}`, into)
	})
	need.NoError(t, err)
	want := `{"workspaces":[{"workspace":"here"},{"workspace":"moves"},{"error":"forbidden","workspace":"refused"},` +
		`{"workspace":"inside","error":"owner_moving","disk_bytes":7}],"freed_bytes":3,"waiting_bytes":0,"dry_run":false}`
	if string(raw) != want || len(done.Workspaces) != 3 || done.Freed != 3 {
		t.Errorf("%s, %+v", raw, done)
	}
	if asked["moves"] != 3 || asked["inside"] != 3 || asked["gone"] != 1 || asked["refused"] != 1 {
		t.Errorf("asked %v", asked)
	}

	clear(asked)
	use := render.DiskUse{DiskBytes: 1, Elsewhere: []string{"moves", "gone"}}
	used := func(id string, into *render.DiskUse) ([]byte, error) {
		return answer(id, `{"workspaces":[{"workspace":"moves"}],"disk_bytes":2}`, into)
	}
	raw, err = usedElsewhere(&use, []byte(`{"workspaces":[{"workspace":"here"}],"disk_bytes":1}`), used)
	if err != nil || use.DiskBytes != 3 || string(raw) != `{"workspaces":[{"workspace":"here"},{"workspace":"moves"}],"disk_bytes":3,"task_files_bytes":0}` {
		t.Errorf("%s, %+v, %v", raw, use, err)
	}
	use.Elsewhere = []string{"refused"}
	if _, err := usedElsewhere(&use, raw, used); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("%v", err)
	}
}
