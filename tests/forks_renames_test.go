package tests

import (
	"fmt"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// Names that two sides gave are merged as contents are, by a merge and by a rebase: two names
// of a file or directory are a conflict, those of a file and of directories above it are
// combined.
func TestForkMergeRenames(t *testing.T) {
	type names [][2]string // renames; to "": the file is changed, to "-": deleted
	cases := map[string]struct {
		here, there names
		conflicts   string // names there and here
		merged      string // by on_conflict skip
	}{
		"a file, to different names":       {names{{"a", "b"}}, names{{"a", ""}, {"a", "c"}, {"c", ""}, {"k", ""}}, "c=b", "b:a d/s/y:y d/x:x k:k+"},
		"likewise in a directory":          {names{{"d/x", "d/z"}}, names{{"d/x", "d/v"}, {"k", "l"}}, "d/v=d/z", "a:a d/s/y:y d/z:x l:k"},
		"to the same name":                 {names{{"a", "b"}}, names{{"a", "b"}, {"b", ""}}, "", "b:a+ d/s/y:y d/x:x k:k"},
		"to the same name by the way":      {names{{"a", "b"}}, names{{"a", "c"}, {"c", ""}, {"c", "b"}}, "", "b:a+ d/s/y:y d/x:x k:k"},
		"back to its name there":           {names{{"a", "b"}}, names{{"a", "c"}, {"c", ""}, {"c", "a"}}, "", "b:a+ d/s/y:y d/x:x k:k"},
		"deleted after its rename there":   {names{{"a", "b"}}, names{{"a", "c"}, {"c", "-"}}, "", "d/s/y:y d/x:x k:k"},
		"the name there is used here":      {names{{"a", "b"}, {"k", "c"}}, names{{"a", "c"}}, "c=b", "b:a c:k d/s/y:y d/x:x"},
		"the way there is used here":       {names{{"a", "b"}, {"k", "c"}}, names{{"a", "c"}, {"c", ""}, {"c", "b"}}, "", "b:a+ c:k d/s/y:y d/x:x"},
		"a directory there":                {names{{"d/x", ""}}, names{{"d", "e"}}, "", "a:a e/s/y:y e/x:x+ k:k"},
		"a directory here":                 {names{{"d", "e"}}, names{{"d/x", ""}, {"d/n", ""}}, "", "a:a e/n:+ e/s/y:y e/x:x+ k:k"},
		"a file here, its directory there": {names{{"d/x", "d/z"}}, names{{"d", "e"}, {"e/x", ""}}, "", "a:a e/s/y:y e/z:x+ k:k"},
		"a file there, its directory here": {names{{"d", "e"}}, names{{"d/x", "d/z"}, {"d/z", ""}}, "", "a:a e/s/y:y e/z:x+ k:k"},
		"a file moved out here":            {names{{"d/x", "z"}}, names{{"d", "e"}, {"e/x", ""}}, "", "a:a e/s/y:y k:k z:x+"},
		"a file moved out there":           {names{{"d", "e"}}, names{{"d/x", "z"}, {"z", ""}}, "", "a:a e/s/y:y k:k z:x+"},
		"a directory in one here":          {names{{"d/s", "d/t"}}, names{{"d", "e"}, {"e/s/y", ""}, {"e/s/y", "e/s/w"}}, "", "a:a e/t/w:y+ e/x:x k:k"},
		"a directory in one there":         {names{{"d", "e"}}, names{{"d/s", "d/t"}, {"d/t/y", ""}}, "", "a:a e/t/y:y+ e/x:x k:k"},
		"a directory moved out here":       {names{{"d/s", "g"}}, names{{"d", "e"}}, "", "a:a e/x:x g/y:y k:k"},
		"a directory moved out there":      {names{{"d", "e"}}, names{{"d/s", "g"}}, "", "a:a e/x:x g/y:y k:k"},
		"a directory, to different names":  {names{{"d", "e"}}, names{{"d/x", ""}, {"d", "f"}, {"f/n", ""}, {"a", ""}}, "f=e", "a:a+ e/s/y:y e/x:x k:k"},
		"a directory, to the same name":    {names{{"d", "e"}}, names{{"d", "e"}, {"e/x", ""}}, "", "a:a e/s/y:y e/x:x+ k:k"},
		"a directory, to it by the way":    {names{{"d", "e"}}, names{{"d", "f"}, {"f", "e"}, {"e/x", ""}}, "", "a:a e/s/y:y e/x:x+ k:k"},
		"one is added here":                {names{{"d/n", ""}}, names{{"d", "e"}}, "", "a:a e/n:+ e/s/y:y e/x:x k:k"},
		"added here, and there":            {names{{"d/n", ""}}, names{{"d", "e"}, {"e/n", ""}}, "", "a:a d/n:+ e/n:+ e/s/y:y e/x:x k:k"},
		"added here, where a file is":      {names{{"d/n", ""}, {"e/n", ""}, {"e/n", ""}, {"d/m", ""}}, names{{"d", "e"}}, "", "a:a d/n:+ e/m:+ e/n:++ e/s/y:y e/x:x k:k"},
		"added here, two names there":      {names{{"d/n", ""}, {"d/n", "d/m"}}, names{{"d", "e"}, {"e", "f"}}, "", "a:a f/m:+ f/s/y:y f/x:x k:k"},
		"added here, and back there":       {names{{"d/n", ""}}, names{{"d", "e"}, {"e", "d"}}, "", "a:a d/n:+ d/s/y:y d/x:x k:k"},
		"added in one in one":              {names{{"d", "e"}, {"e/s/n", ""}}, names{{"d/s", "d/t"}}, "", "a:a e/t/n:+ e/t/y:y e/x:x k:k"},
		"moved into one here":              {names{{"k", "d/k"}}, names{{"d", "e"}}, "", "a:a d/k:k e/s/y:y e/x:x"},
		"added where files move there":     {names{{"d/n", ""}}, names{{"d/x", "e/x"}, {"d/s/y", "e/s/y"}}, "", "a:a d/n:+ e/s/y:y e/x:x k:k"},
		"added where a part is moved out":  {names{{"d/n", ""}, {"d/x", "z"}}, names{{"d", "e"}}, "", "a:a e/n:+ e/s/y:y k:k z:x"},
		"a file and its directory there":   {names{{"d/x", "d/z"}}, names{{"d/x", ""}, {"d", "e"}, {"e/x", "e/w"}}, "e/w=d/z", "a:a d/z:x e/s/y:y k:k"},
	}
	p := newProject(t, nil)
	n := 0
	for name, x := range cases {
		for _, as := range []string{"replay", "squash", "rebase"} {
			n++
			here, there := fmt.Sprintf("h%d", n), fmt.Sprintf("t%d", n)
			first, second := here, there
			if as == "rebase" {
				first, second = there, here
			}
			made := p.post(t, "/tasks", map[string]any{"task_id": first, "goal": "g", "kind": "virtual", "namespace": []string{first}}).want(t, 201)
			parent := made.str(t, "workspace_id")
			for path, text := range map[string]string{"a": "a\n", "k": "k\n", "d/x": "x\n", "d/s/y": "y\n"} {
				p.call(t, "PUT", "/tasks/"+first+"/content?path="+path, []byte(text)).want(t, 201)
			}
			fork := p.forks(t, "/workspaces/"+parent, map[string]any{"kind": "virtual"})[0]
			id := fork["id"].(string)
			p.post(t, "/tasks", map[string]any{"task_id": second, "workspace": id, "goal": "g"}).want(t, 201)
			do := func(task string, list names) {
				t.Helper()
				for _, do := range list {
					content := "/tasks/" + task + "/content?path=" + do[0]
					var a *answer
					switch do[1] {
					case "":
						var text []byte
						if old := p.call(t, "GET", content, nil); old.Status == 200 {
							text = old.Body
						}
						a = p.call(t, "PUT", content, append(text, "+\n"...), "X-Actor", task)
					case "-":
						a = p.call(t, "DELETE", content, nil, "X-Actor", task)
					default:
						a = p.post(t, "/tasks/"+task+"/move", map[string]any{"from": do[0], "to": do[1]}, "X-Actor", task)
					}
					if a.Status/100 != 2 {
						t.Fatalf("%s: %d %s", name, a.Status, a.Body)
					}
				}
			}
			do(here, x.here)
			do(there, x.there)
			target, git := parent, made.str(t, "git_dir")
			verb, body := "/merge", map[string]any{"as": as}
			if as == "rebase" {
				target, git, verb, body = id, fork["git_dir"].(string), "/rebase", map[string]any{}
			}
			list := func() string {
				t.Helper()
				p.post(t, "/workspaces/"+target+"/sync", map[string]any{}).want(t, 200)
				var out []string // a file's lines are one member
				for _, line := range strings.Fields(harness.Git(t, git, "grep", "", "refs/heads/shadow")) {
					path, text, _ := strings.Cut(strings.TrimPrefix(line, "refs/heads/shadow:"), ":")
					if last := len(out) - 1; last >= 0 && strings.HasPrefix(out[last], path+":") {
						out[last] += text
					} else {
						out = append(out, path+":"+text)
					}
				}
				return strings.Join(out, " ")
			}
			fails := func(format string, args ...any) {
				t.Helper()
				t.Errorf("%s, %s: %s", name, as, fmt.Sprintf(format, args...))
			}
			before := list()
			var dry, done, later mergeAnswer
			body["dry_run"] = true
			p.post(t, "/workspaces/"+id+verb, body).want(t, 200).into(t, &dry)
			var got []string
			for _, c := range dry.Conflicts {
				got = append(got, c.Path+"="+c.Here)
				if c.Reason != "renamed" || c.Ours == nil || c.Ours.Actor != here || c.Theirs == nil || c.Theirs.Actor != there {
					fails("%+v %+v %+v", c, c.Ours, c.Theirs)
				}
			}
			if got := strings.Join(got, " "); got != x.conflicts {
				fails("the conflicts are %q, not %q", got, x.conflicts)
			}
			body["dry_run"] = false
			if len(got) > 0 {
				p.post(t, "/workspaces/"+id+verb, body).fails(t, 409, "merge_conflict")
				if now := list(); now != before {
					fails("a refused merge left %s of %s", now, before)
				}
			}
			body["on_conflict"] = "skip"
			p.post(t, "/workspaces/"+id+verb, body).want(t, 200).into(t, &done)
			if now := list(); now != x.merged {
				fails("it has %s, not %s", now, x.merged)
			}
			body["dry_run"] = true
			p.post(t, "/workspaces/"+id+verb, body).want(t, 200).into(t, &later)
			if len(later.Conflicts) != len(got) || len(later.Files) != 0 {
				fails("a later merge has the conflicts %v and would change %v", later.Conflicts, later.Files)
			}
			if len(got) == 0 {
				continue
			}
			// The conflict is gone when one side takes the other's name.
			theirs, ours, _ := strings.Cut(x.conflicts, "=")
			do(there, names{{theirs, ours}})
			p.post(t, "/workspaces/"+id+verb, body).want(t, 200).into(t, &later)
			if len(later.Conflicts) != 0 {
				fails("the names are one, and it has %v", later.Conflicts)
			}
		}
	}
}
