// Package cluster tests clusters from outside: built programs, PostgreSQL with a
// synchronous standby, an S3 server.
package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// rig is an engine and a store.
type rig struct {
	t     *testing.T
	pair  *clustertest.Pair
	url   string
	blobs string
	env   []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	return &rig{t: t, pair: p, url: strings.Replace(p.A.Database(t), "umbra@", "umbra:s3cret@", 1),
		blobs: blobtest.At(blobtest.Start(t).URL, "prod"), env: blobtest.Credentials()}
}

// run runs a verb about the cluster, and reads its JSON.
func (r *rig) run(into any, wantStatus int, args ...string) (stderr string) {
	r.t.Helper()
	args = append(append([]string{"cluster"}, args...), "--json", "--cluster", r.url, "--blobs", r.blobs)
	status, stdout, stderr := harness.Run(r.t, r.env, args...)
	if status != wantStatus {
		r.t.Fatalf("umbra %s: exit status %d, not %d\n%s%s", strings.Join(args, " "), status, wantStatus, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, "s3cret") {
		r.t.Errorf("umbra %s prints the password:\n%s%s", args[1], stdout, stderr)
	}
	if into != nil {
		d := json.NewDecoder(strings.NewReader(stdout))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			r.t.Fatalf("umbra %s: %v in %s", args[1], err, stdout)
		}
	}
	return stderr
}

func (r *rig) serve(name string, more ...string) *harness.Server {
	r.t.Helper()
	return harness.Start(r.t, harness.Options{Env: r.env, Args: append([]string{"--cluster", r.url, "--blobs", r.blobs, "--node", name}, more...)})
}

type made struct {
	Cluster string `json:"cluster"`
	Schema  int    `json:"schema"`
	LeaseMS int    `json:"lease_ms"`
	Blobs   string `json:"blobs"`
	Created bool   `json:"created"`
}

type status struct {
	Cluster string `json:"cluster"`
	Schema  int    `json:"schema"`
	LeaseMS int    `json:"lease_ms"`
	Engine  struct {
		State     string `json:"state"`
		Version   string `json:"version"`
		Standbys  int    `json:"standbys"`
		LatencyMS int    `json:"latency_ms"`
	} `json:"engine"`
	Blobs struct {
		State     string `json:"state"`
		LatencyMS int    `json:"latency_ms"`
	} `json:"blobs"`
	Nodes []struct {
		Node      string `json:"node"`
		Address   string `json:"address"`
		Version   string `json:"version"`
		State     string `json:"state"`
		BeatAgeMS int    `json:"beat_age_ms"`
		Owned     int    `json:"owned"`
		Pinned    int    `json:"pinned"`
	} `json:"nodes"`
	Workspaces struct {
		Total           int `json:"total"`
		Owned           int `json:"owned"`
		Pinned          int `json:"pinned"`
		UnsealedBytes   int `json:"unsealed_bytes"`
		OldestUnsealedS int `json:"oldest_unsealed_s"`
	} `json:"workspaces"`
	Garbage struct {
		Objects int `json:"objects"`
		Bytes   int `json:"bytes"`
	} `json:"garbage"`
}

// TestVerbs goes through the life of a cluster by its verbs.
func TestVerbs(t *testing.T) {
	r := newRig(t)
	if stderr := r.run(nil, 1, "status"); !strings.Contains(stderr, "umbra: cluster: cluster_missing: ") {
		t.Errorf("status of no cluster: %s", stderr)
	}
	var first, second made
	r.run(&first, 0, "init", "--lease", "1s")
	if !first.Created || first.LeaseMS != 1000 || first.Schema != 4 || len(first.Cluster) != 36 || !strings.HasPrefix(first.Blobs, "s3://packs/prod") {
		t.Errorf("init: %+v", first)
	}
	r.run(&second, 0, "init", "--lease", "1s")
	if first.Created = false; first != second {
		t.Errorf("init again: %+v", second)
	}
	n1, n2 := r.serve("n1"), r.serve("n2")
	var s status
	r.run(&s, 0, "status")
	if s.Cluster != first.Cluster || s.Engine.State != "ok" || s.Engine.Standbys != 1 || s.Blobs.State != "ok" || len(s.Nodes) != 2 ||
		s.Nodes[0].Node != "n1" || s.Nodes[0].State != "live" || !strings.HasSuffix(s.Nodes[0].Address, n1.Address[strings.LastIndexByte(n1.Address, ':'):]) || s.Nodes[0].BeatAgeMS > 1000 {
		t.Errorf("status: %+v", s)
	}
	var drained struct {
		Node     string   `json:"node"`
		Released int      `json:"released"`
		Left     []string `json:"left"`
		TookMS   int      `json:"took_ms"`
	}
	r.run(&drained, 0, "drain", "n2")
	r.run(&s, 0, "status")
	if drained.Node != "n2" || drained.Left == nil || s.Nodes[1].State != "draining" {
		t.Errorf("%+v, then %+v", drained, s.Nodes)
	}
	r.run(nil, 0, "drain", "n2", "--undo")
	if stderr := r.run(nil, 1, "drain", "n9"); stderr != "umbra: cluster: no live node has the name: n9\n" {
		t.Errorf("drain of no node: %s", stderr)
	}
	// One name is one node.
	status, _, stderr := harness.Run(t, r.env, "serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--cluster", r.url, "--blobs", r.blobs, "--node", "n1")
	if status != 1 || !strings.Contains(stderr, "umbra: cluster: node_name_taken: Node n1 is live at "+s.Nodes[0].Address+".\n") {
		t.Errorf("a second n1: exit status %d, %s", status, stderr)
	}
	// A node that was killed is back at once on its data directory.
	n1.Kill()
	n1.Restart()
	if log := n1.Log.String() + n2.Log.String(); strings.Contains(log, "s3cret") || strings.Contains(log, blobtest.SecretKey) {
		t.Error("a secret is in the log")
	}
	// One that stops says so.
	n2.Stop()
	r.run(&s, 0, "status")
	if len(s.Nodes) != 2 || s.Nodes[0].State != "live" || s.Nodes[1].State != "dead" {
		t.Errorf("after a stop: %+v", s.Nodes)
	}
}

// TestStartRefusals are starts that end with a code.
func TestStartRefusals(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	dir := t.TempDir()
	other := strings.Replace(r.pair.A.Database(t), "umbra@", "umbra:s3cret@", 1)
	n := harness.Start(t, harness.Options{DataDir: dir, Env: r.env, Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", "n1"}})
	n.Stop()
	for _, c := range []struct {
		name   string
		args   []string
		env    []string
		status int
		want   string
	}{
		{"one without the other", []string{"--cluster", r.url}, r.env, 2, "cluster_incomplete: cluster.url and cluster.blobs belong together; cluster.blobs is missing.\n"},
		{"another scheme", []string{"--cluster", "mysql://u:s3cret@h/d", "--blobs", r.blobs}, r.env, 2, "cluster_url_invalid: "},
		{"a wrong store", []string{"--cluster", r.url, "--blobs", "s3://"}, r.env, 2, "blobs_url_invalid: "},
		{"another cluster's store", []string{"--cluster", other, "--blobs", r.blobs}, r.env, 1, "blobs_other_cluster: s3://packs/prod belongs to cluster "},
		{"another prefix", []string{"--cluster", r.url, "--blobs", strings.Replace(r.blobs, "/prod", "/dev", 1)}, r.env, 1, "blobs_marker_missing: "},
		{"wrong credentials", []string{"--cluster", r.url, "--blobs", r.blobs}, []string{"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y"}, 1, "blobs_credentials: "},
		{"another cluster's data directory", []string{"--cluster", other, "--blobs", r.blobs, "--data-dir", dir}, r.env, 1, "data_dir_other_cluster: " + dir + " is the cache of cluster "},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--node", "n2"}, c.args...)
			status, stdout, stderr := harness.Run(t, c.env, args...)
			if status != c.status || !strings.Contains(stderr, "umbra: cluster: "+c.want) {
				t.Errorf("exit status %d, %s%s", status, stdout, stderr)
			}
			if strings.Contains(stderr, "s3cret") {
				t.Errorf("the password is shown: %s", stderr)
			}
		})
	}
}

// TestDoctor looks at a cluster that is well, and at one whose engine is not.
func TestDoctor(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1 := r.serve("n1")
	doctor := func(wantStatus int) map[string]map[string][]string {
		t.Helper()
		status, stdout, stderr := harness.Run(t, r.env, "doctor", "--json", "--data-dir", filepath.Join(t.TempDir(), "none"), "--cluster", r.url, "--blobs", r.blobs)
		var found struct {
			Hurts    bool `json:"hurts"`
			Findings []struct {
				Check  string `json:"check"`
				Level  string `json:"level"`
				Detail string `json:"detail"`
				Do     string `json:"do"`
			} `json:"findings"`
		}
		if err := json.Unmarshal([]byte(stdout), &found); err != nil || status != wantStatus || strings.Contains(stdout+stderr, "s3cret") {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
		by := map[string]map[string][]string{}
		for _, f := range found.Findings {
			if by[f.Check] == nil {
				by[f.Check] = map[string][]string{}
			}
			by[f.Check][f.Level] = append(by[f.Check][f.Level], f.Detail)
			if f.Level == "hurts" && f.Do == "" {
				t.Errorf("nothing to do about %q", f.Detail)
			}
		}
		return by
	}
	well := doctor(0)
	for check, want := range map[string]string{"engine": "PostgreSQL ", "replication": "commits wait for ANY 1 (b): b (quorum)", "blobs": "s3://packs/prod takes PUT, ranged GET, LIST and DELETE", "cluster": "node n1 is live at "} {
		if all := strings.Join(well[check]["ok"], "\n"); !strings.Contains(all, want) || len(well[check]["hurts"]) > 0 {
			t.Errorf("%s: %v", check, well[check])
		}
	}
	if strings.Join(well["clock"]["hurts"], "") != "" || len(well["blobs"]["note"]) != 1 {
		t.Errorf("clock %v, blobs %v", well["clock"], well["blobs"])
	}

	// A node that hangs is not reached; PostgreSQL waits for no standby.
	n1.Signal(syscall.SIGSTOP)
	defer n1.Signal(syscall.SIGCONT)
	r.pair.A.Set("synchronous_standby_names", "")
	ill := doctor(1)
	if hurts := strings.Join(ill["replication"]["hurts"], ""); !strings.Contains(hurts, "synchronous_standby_names is empty: nodes refuse writes") {
		t.Errorf("replication: %v", ill["replication"])
	}
	if hurts := strings.Join(ill["cluster"]["hurts"], ""); !strings.Contains(hurts, "node n1 cannot be reached from here at ") {
		t.Errorf("cluster: %v", ill["cluster"])
	}
	r.pair.A.Kill()
	if gone := doctor(1); !strings.Contains(strings.Join(gone["engine"]["hurts"], ""), "engine_unreachable: ") || len(gone["blobs"]["ok"]) != 1 {
		t.Errorf("without an engine: %v", gone)
	}
}
