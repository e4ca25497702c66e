package tests

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// foreign are texts that only a Go program, or a system call, says.
var foreign = regexp.MustCompile(`json: |strconv|goroutine|panic|runtime|invalid character|cannot unmarshal|<nil>|%!|\*[a-z]+\.|\.go:|no such file|syscall|invalid syntax|context canceled|error parsing|\bEOF\b`)

// TestWrongRequests sends each route of the API that takes JSON what is no JSON,
// misspelled fields and values of wrong types, and each parameter a wrong value. Each
// is refused in the API's own words, without a path of the server, and changes
// nothing.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Config: "exec: {enabled: true}\n"})
	task, root := newTask(t, s)
	s.Do("PUT", "/tasks/"+task+"/content?path=a.txt", "one\n").Expect(201)
	ws := s.Do("GET", "/tasks/"+task, nil).Expect(200).Text("workspace_id")
	session := s.Do("POST", "/api/sessions", map[string]any{"workspaceRoot": root}).Expect(201).Text("sessionId")
	toolset := s.Do("POST", "/toolsets", map[string]any{"mounts": []any{map[string]any{"prefix": "/p", "scope": "READ_WRITE",
		"store": map[string]any{"type": "physical", "root": root}}}}).Expect(201).Text("id")
	s.Do("POST", "/calls", map[string]any{"agent": "me", "agent_session": "s", "call_id": "c", "cwd": root, "tool": "edit", "paths": []string{"a.txt"}}).Expect(201)
	head := s.Do("GET", "/workspaces/"+ws, nil).Expect(200).Text("head")
	of := func(pattern string) string {
		values := map[string]string{"ws": ws, "call": "c", "commit": head, "n": "1", "path": "a.txt", "id": task}
		switch {
		case strings.HasPrefix(pattern, "/api/sessions/"):
			values["id"] = session
		case strings.HasPrefix(pattern, "/toolsets/"), strings.HasPrefix(pattern, "/mcp/"):
			values["id"] = toolset
		}
		return regexp.MustCompile(`\{([^}]*)\}`).ReplaceAllStringFunc(pattern, func(p string) string {
			if v := values[strings.Trim(p, "{}")]; v != "" {
				return v
			}
			return "x"
		})
	}
	doc, err := openapi3.NewLoader().LoadFromData(s.Do("GET", "/openapi.json", nil).Expect(200).Body)
	need.NoError(t, err)
	sent := 0
	wrong := func(method, target string, body any, headers ...string) {
		r := s.Do(method, target, body, headers...)
		sent++
		switch {
		case r.Status < 400 || r.Status >= 500:
			t.Errorf("%s %s %s: %d %.200s", method, target, body, r.Status, r.Body)
		case foreign.Match(r.Body) || strings.Contains(string(r.Body), root) || strings.Contains(string(r.Body), s.DataDir):
			t.Errorf("%s %s %s: it says %.300s", method, target, body, r.Body)
		}
	}
	// unknown sends a parameter that the route does not take, close to another one's name.
	unknown := func(method, target, name, near string) {
		var body any
		if method == "POST" || method == "PUT" || method == "PATCH" {
			body = map[string]any{}
		}
		r := s.Do(method, target+"?"+name+"=1", body)
		sent++
		if r.Status != 400 || !strings.Contains(string(r.Body), "Unknown query parameter "+name+";") || near != "" && r.Text("did_you_mean") != near {
			t.Errorf("%s %s?%s: %d %.300s", method, target, name, r.Status, r.Body)
		}
	}
	// A list refuses a place that is none only after what it requires.
	needed := map[string]string{"/workspaces/{ws}/blame": "?path=a.txt&", "/workspaces/{ws}/log/search": "?pattern=x&", "/tasks/{id}/list": "?path=sub&"}
	for _, pattern := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item, target := doc.Paths.Value(pattern), of(pattern)
		if strings.HasPrefix(pattern, "/mcp") {
			continue // JSON-RPC
		}
		// These dialects ignore unknown fields and, on reads, unknown parameters.
		lenient := regexp.MustCompile(`^/(api|workspace|execute|lint|scripts)(/|$)`).MatchString(pattern)
		loose := lenient || regexp.MustCompile(`^/($|git/|ui/|health|readyz|metrics|docs|openapi)`).MatchString(pattern)
		for method, op := range item.Operations() {
			if !loose && method != "GET" || lenient && method == "DELETE" {
				unknown(method, target, "nonsense", "")
			}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Value.In != "query" {
					continue
				}
				for _, v := range badValues(p.Value.Schema.Value) {
					wrong(method, target+"?"+p.Value.Name+"="+url.QueryEscape(v), nil)
				}
				if r := s.Do(method, target+"?"+p.Value.Name+"=%00", nil); strings.Contains(string(r.Body), "Unknown query") {
					t.Errorf("%s %s?%s: %d %s", method, target, p.Value.Name, r.Status, r.Body)
				}
				if !loose {
					unknown(method, target, p.Value.Name+"x", p.Value.Name)
				}
				if p.Value.Name == "after" {
					wrong(method, target+cmp.Or(needed[pattern], "?")+"after=zzz", nil)
				}
			}
			if op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			for _, body := range []string{"{", "[]", `"x"`, "7", "{} x", `{"a":1,"a":2}`, "{\"a\":\"\xff\"}"} {
				wrong(method, target, body, asJSON)
			}
			wrong(method, target, "{}", "Content-Type: text/plain")
			schema := op.RequestBody.Value.Content["application/json"].Schema.Value
			for name, field := range fieldsOfSchema(schema) {
				if !lenient {
					r := s.Do(method, target, map[string]any{name + "x": true})
					if r.Status != 400 || r.Text("error") != "unknown_field" || r.Field("did_you_mean") == nil {
						t.Errorf("%s %s with %sx: %d %s", method, pattern, name, r.Status, r.Body)
					}
					// In the query it would be ignored.
					r = s.Do(method, target+"?"+name+"=true", "{}", asJSON)
					if r.Status != 400 || r.Text("error") != "invalid_parameter" || r.Text("field") != name {
						t.Errorf("%s %s?%s=true: %d %s", method, pattern, name, r.Status, r.Body)
					}
				}
				if field.Type == nil || len(*field.Type) != 1 || lenient && !slices.Contains(schema.Required, name) {
					continue
				}
				value := any(map[string]any{"a": 1})
				if field.Type.Is("object") {
					value = "x"
				}
				wrong(method, target, map[string]any{name: value})
			}
		}
	}
	if sent < 600 {
		t.Errorf("only %d requests were sent", sent)
	}
	if now := s.Do("GET", "/workspaces/"+ws, nil).Expect(200).Text("head"); now != head {
		t.Errorf("the head is %s, not %s", now, head)
	}
}

// fieldsOfSchema returns the properties of a body.
func fieldsOfSchema(s *openapi3.Schema) map[string]*openapi3.Schema {
	out := map[string]*openapi3.Schema{}
	for name, p := range s.Properties {
		out[name] = p.Value
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		maps.Copy(out, fieldsOfSchema(part.Value))
	}
	return out
}

// badValues are those that a parameter does not take.
func badValues(s *openapi3.Schema) []string {
	switch {
	case s.Type != nil && s.Type.Is("integer"):
		return []string{"abc", "-1", "1.5", "99999999999999999999"}
	case s.Type != nil && s.Type.Is("boolean"):
		return []string{"maybe"}
	case len(s.Enum) > 0:
		return []string{"nope"}
	}
	return nil
}

// TestDryRunInTheQuery: a dry run that is asked for in the wrong place undoes nothing.
func TestDryRunInTheQuery(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	task, _ := newTask(t, s)
	s.Do("PUT", "/tasks/"+task+"/content?path=a.txt", "one\n").Expect(201)
	for _, name := range []string{"dry_run", "dryRun", "dry-run", "dryrun"} {
		s.Do("POST", "/tasks/"+task+"/revert?"+name+"=true", nil).ExpectError(400, "invalid_parameter")
	}
	if r := s.Do("GET", "/tasks/"+task+"/content?path=a.txt", nil).Expect(200); string(r.Body) != "one\n" {
		t.Errorf("the file has %q", r.Body)
	}
}
