package cluster

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"umbra/tests/harness"
)

var requestID = regexp.MustCompile(`"request_id":"[0-9a-f]+",?`)

// TestUnseen: at each node, what a token may not see is as what does not exist: no header has
// its owner or its newest commit.
func TestUnseen(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	env := append([]string{"UMBRA_CLUSTER_URL=" + r.url, "UMBRA_CLUSTER_BLOBS=" + r.blobs, "UMBRA_HTTP_HOSTS=0.0.0.0", "UMBRA_CLUSTER_PHYSICAL=true"}, r.env...)
	token := func(name, root string) string {
		t.Helper()
		status, stdout, stderr := harness.Run(t, env, "token", "add", name, "--scope", "write", "--root", root)
		if status != 0 {
			t.Fatalf("umbra token add %s: %s", name, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	here, there := t.TempDir(), t.TempDir()
	all, some := token("all", "/"), token("some", here)
	var nodes []*harness.Server
	for _, name := range []string{"n1", "n2"} {
		nodes = append(nodes, harness.Start(t, harness.Options{Env: append([]string{"UMBRA_CLUSTER_PUBLIC_URL=http://" + name + ".example"}, env...),
			Args: []string{"--node", name}, Listen: "0.0.0.0:0", Token: all}))
	}
	var own, unseen task
	nodes[0].Do("POST", "/tasks", map[string]any{"goal": "seen", "workspace": here}).Expect(http.StatusCreated).JSON(&own)
	nodes[0].Do("POST", "/tasks", map[string]any{"goal": "not seen", "workspace": there}).Expect(http.StatusCreated).JSON(&unseen)
	answer := func(s *harness.Server, method, path, body, id, header string) string {
		headers := []string{"Authorization: Bearer " + some, header}
		var sent any
		if body != "" {
			sent, headers = []byte(strings.ReplaceAll(body, "ID", id)), append(headers, "Content-Type: application/json")
		}
		res := s.Do(method, strings.ReplaceAll(path, "ID", id), sent, headers...)
		var found []string
		for name := range res.Header {
			if strings.HasPrefix(name, "Umbra-") || name == "Location" {
				found = append(found, name+": "+res.Header.Get(name))
			}
		}
		slices.Sort(found)
		return strings.ReplaceAll(requestID.ReplaceAllString(fmt.Sprint(res.Status, " ", string(res.Body), found), ""), id, "ID")
	}
	for _, header := range []string{"Umbra-Strict: 1", "Umbra-Direct: 1", "Umbra-Redirect: 1", "Umbra-Min-Seq: 0", "Umbra-Min-Seq: 99999", "Idempotency-Key: k"} {
		for _, a := range []struct{ method, path, body, none string }{
			{"GET", "/workspaces/ID", "", "there-00000000"}, {"GET", "/workspaces/ID/log", "", "there-00000000"}, {"DELETE", "/workspaces/ID", "", "there-00000000"},
			{"GET", "/git/ID/info/refs?service=git-upload-pack", "", "there-00000000"}, {"POST", "/tasks", `{"goal":"g","workspace_id":"ID"}`, "there-00000000"},
			{"POST", "/workspaces/" + own.Workspace + "/merge", `{"into":"ID","dry_run":true}`, "there-00000000"},
			{"GET", "/tasks/ID", "", "none"}, {"PUT", "/tasks/ID/content?path=f", "{}", "none"}, {"POST", "/tasks/ID/revert", "{}", "none"},
		} {
			if header == "Umbra-Redirect: 1" && a.path == "/workspaces/"+own.Workspace+"/merge" {
				continue // it is redirected for its own workspace
			}
			id := unseen.Workspace
			if a.none == "none" {
				id = unseen.ID
			}
			for i, s := range nodes {
				if got, want := answer(s, a.method, a.path, a.body, id, header), answer(s, a.method, a.path, a.body, a.none, header); got != want {
					t.Errorf("n%d, %s, %s %s: %s\nwhere nothing is: %s", i+1, header, a.method, a.path, got, want)
				}
			}
		}
	}
}
