package check

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"umbra/config"
)

// known reports a variable that no setting of umbra has.
func known(t *testing.T, name string) {
	t.Helper()
	if !strings.HasPrefix(name, "UMBRA_") {
		return
	}
	if !slices.Contains(config.Variables(), name) {
		t.Errorf("%s is no setting", name)
	}
}

// render returns what Helm makes of the chart, a document each.
func render(t *testing.T, values string) ([]string, error) {
	t.Helper()
	c, err := loader.Load("../helm/umbra")
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "prod", Namespace: "agents", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		for doc := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				list = append(list, doc)
			}
		}
	}
	return list, nil
}

const least = `
cluster: {blobs: "s3://packs/prod?region=eu-central-1"}
tokens: [{name: me, sha256: "0000000000000000000000000000000000000000000000000000000000000001", scope: write}]
`

func TestChart(t *testing.T) {
	for name, more := range map[string]string{
		"a database of its own":  "postgres: {enabled: true, storageClass: fast}",
		"another one's database": "",
		"all":                    "cache: {storageClass: fast}\nstore: {secret: s3}\nhosts: [umbra.example.com]\nimage: {pullSecrets: [{name: registry}]}\nservice: {annotations: {a: b}}\nserviceAccount: {annotations: {a: b}}\nnodeSelector: {a: b}\ntolerations: [{key: a, operator: Exists}]",
	} {
		t.Run(name, func(t *testing.T) {
			values := least + more
			if !strings.Contains(more, "postgres") {
				values = strings.Replace(values, "cluster: {", "cluster: {urlSecret: db, ", 1)
			}
			docs, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			kinds := map[string]int{}
			for _, doc := range docs {
				var head struct {
					Kind string `json:"kind"`
				}
				if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
					t.Fatalf("%v in\n%s", err, doc)
				}
				kinds[head.Kind]++
				var into any
				switch head.Kind {
				case "Deployment":
					into = &apps.Deployment{}
				case "Service":
					into = &core.Service{}
				case "ServiceAccount":
					into = &core.ServiceAccount{}
				case "ConfigMap":
					into = &core.ConfigMap{}
				case "PodDisruptionBudget":
					into = &policy.PodDisruptionBudget{}
				case "Cluster":
					continue // of another operator
				default:
					t.Errorf("kind %q", head.Kind)
					continue
				}
				if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
					t.Errorf("%s: %v in\n%s", head.Kind, err, doc)
				}
				switch o := into.(type) {
				case *apps.Deployment:
					deployed(t, o)
				case *core.ConfigMap:
					var c struct {
						Auth struct {
							Tokens []map[string]string `json:"tokens"`
						} `json:"auth"`
					}
					if err := yaml.UnmarshalStrict([]byte(o.Data["config.yaml"]), &c); err != nil || len(c.Auth.Tokens) != 1 || c.Auth.Tokens[0]["name"] != "me" {
						t.Errorf("config.yaml: %v %+v in\n%s", err, c, o.Data["config.yaml"])
					}
				}
			}
			want := map[string]int{"Deployment": 1, "Service": 1, "ServiceAccount": 1, "ConfigMap": 1, "PodDisruptionBudget": 1}
			if strings.Contains(more, "postgres") {
				want["Cluster"] = 1
			}
			if !maps.Equal(kinds, want) {
				t.Errorf("kinds %v", kinds)
			}
		})
	}
}

func deployed(t *testing.T, d *apps.Deployment) {
	t.Helper()
	if !maps.Equal(d.Spec.Selector.MatchLabels, map[string]string{"app.kubernetes.io/name": "umbra", "app.kubernetes.io/instance": "prod"}) {
		t.Errorf("selector %v", d.Spec.Selector.MatchLabels)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	for _, e := range c.Env {
		known(t, e.Name)
	}
	mounted := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = true
	}
	for _, v := range pod.Volumes {
		if !mounted[v.Name] {
			t.Errorf("volume %s is not mounted", v.Name)
		}
		delete(mounted, v.Name)
	}
	if len(mounted) > 0 {
		t.Errorf("no volumes %v", mounted)
	}
}

// TestChartRefuses are values that are wrong.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"cluster: {urlSecret: db, blobs: x}":             "tokens is missing",
		"tokens: [{name: me}]":                           "cluster.urlSecret is missing",
		"tokens: [{name: me}]\ncluster: {urlSecret: db}": "cluster.blobs is missing",
		"tokens: [{name: me}]\ncluster: {urlSecret: db, blobs: x}\npostgres: {enabled: true}": "exclude each other",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}
