package check

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func compose(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	return composed(t, []string{"../compose/compose.yaml"}, env)
}

// composed reads compose files, each of which changes those before it.
func composed(t *testing.T, files, env []string) (*types.Project, error) {
	t.Helper()
	opts, err := cli.NewProjectOptions(files, cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return opts.LoadProject(context.Background())
}

func TestCompose(t *testing.T) {
	p, err := compose(t, "UMBRA_DB_PASSWORD=a", "UMBRA_STORE_SECRET=b")
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for name, s := range p.Services {
		if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if info, err := os.Stat(v.Source); err != nil || info.IsDir() {
				t.Errorf("%s mounts %s: %v", name, v.Source, err)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is open to other machines on %s", name, port.Published)
			}
		}
		if s.Build == nil {
			continue
		}
		nodes++
		if s.Hostname != name {
			t.Errorf("%s calls itself %s: other nodes do not reach it", name, s.Hostname)
		}
		for key, value := range s.Environment {
			known(t, key)
			if value == nil || *value == "" {
				t.Errorf("%s: %s is empty", name, key)
			}
		}
	}
	if nodes != 3 {
		t.Errorf("%d nodes", nodes)
	}
	for _, missing := range []string{"UMBRA_DB_PASSWORD", "UMBRA_STORE_SECRET"} {
		env := []string{"UMBRA_DB_PASSWORD=a", "UMBRA_STORE_SECRET=b"}
		for i := range env {
			if strings.HasPrefix(env[i], missing) {
				env[i] = missing + "="
			}
		}
		if _, err := compose(t, env...); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

// TestComposeStandby: the former primary follows the other server by the same script.
func TestComposeStandby(t *testing.T) {
	p, err := composed(t, []string{"../compose/compose.yaml", "../compose/db1-standby.yaml"}, []string{"UMBRA_DB_PASSWORD=a", "UMBRA_STORE_SECRET=b"})
	if err != nil {
		t.Fatal(err)
	}
	one, two := p.Services["db1"], p.Services["db2"]
	if !slices.Equal(one.Entrypoint, two.Entrypoint) || one.User != two.User || !slices.Contains(one.Command, "cluster_name=db1") {
		t.Errorf("db1 runs %q %q as %q", one.Entrypoint, one.Command, one.User)
	}
	for key := range two.Environment {
		if one.Environment[key] == nil || *one.Environment[key] == "" {
			t.Errorf("db1 has no %s", key)
		}
	}
	if *one.Environment["PRIMARY"] != "db2" || *one.Environment["STANDBY"] != "db1" {
		t.Errorf("db1 follows %s as %s", *one.Environment["PRIMARY"], *one.Environment["STANDBY"])
	}
	if !slices.ContainsFunc(one.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == "/standby.sh" }) {
		t.Error("db1 does not have the script")
	}
}
