package tool

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/toolset/mount"
)

func of(scopes ...mount.Scope) *mount.Table {
	var mounts []mount.Mount
	for i, s := range scopes {
		mounts = append(mounts, mount.Mount{Prefix: "/" + string(rune('a'+i)), Scope: s, Kind: mount.Physical})
	}
	t, _ := mount.NewTable(mounts)
	return t
}

func TestFor(t *testing.T) {
	for _, c := range []struct {
		scopes []mount.Scope
		want   string
	}{
		{nil, ""},
		{[]mount.Scope{mount.ReadOnly}, "read_file list_directory stat_file search_files grep_files task_changes task_diff explain_line"},
		{[]mount.Scope{mount.WriteOnly}, "write_file edit_file delete_file revert_changes"},
		{[]mount.Scope{mount.ReadWrite}, "read_file list_directory write_file edit_file stat_file search_files grep_files move_file delete_file task_changes task_diff revert_changes explain_line"},
		{[]mount.Scope{mount.ReadOnly, mount.WriteOnly}, "read_file list_directory write_file edit_file stat_file search_files grep_files delete_file task_changes task_diff revert_changes explain_line"},
	} {
		if got := strings.Join(Names(For(of(c.scopes...), All())), " "); got != c.want {
			t.Errorf("%v: %s", c.scopes, got)
		}
	}
}

// Every model API takes the schemas: an object, no combinators, one scalar type
// a property.
func TestSchemas(t *testing.T) {
	tools := All()
	for i := range tools {
		tl := &tools[i]
		var s struct {
			Type       any                       `json:"type"`
			Properties map[string]map[string]any `json:"properties"`
			Required   []string                  `json:"required"`
			Additional any                       `json:"additionalProperties"`
			All        map[string]any            `json:"-"`
		}
		raw := tl.Schema()
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatalf("%s: %v: %s", tl.Name, err, raw)
		}
		if s.Type != "object" || s.Additional != false || len(s.Properties) != len(tl.Params) {
			t.Errorf("%s: %s", tl.Name, raw)
		}
		for _, word := range []string{"oneOf", "anyOf", "allOf", "$ref", "null"} {
			if strings.Contains(string(raw), `"`+word+`"`) {
				t.Errorf("%s has %s", tl.Name, word)
			}
		}
		for name, p := range s.Properties {
			if items, ok := p["items"].(map[string]any); ok && p["type"] == "array" && items["type"] == "object" && p["description"] != "" {
				continue
			}
			if typ, ok := p["type"].(string); !ok || !slices.Contains([]string{"string", "integer", "boolean"}, typ) || p["description"] == "" {
				t.Errorf("%s.%s: %v", tl.Name, name, p)
			}
		}
		if tl.Description == "" || tl.Title == "" || len(tl.Scopes) == 0 {
			t.Errorf("%s says too little", tl.Name)
		}
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[Format]string{
		MCP:       "annotations description inputSchema name title",
		OpenAI:    "function type",
		Anthropic: "description input_schema name",
		LangChain: "description name schema",
	} {
		list, ok := In(format, All())
		if !ok || len(list) != len(All()) {
			t.Fatalf("%s: %d tools", format, len(list))
		}
		raw, _ := json.Marshal(list[0])
		var o map[string]any
		need.NoError(t, json.Unmarshal(raw, &o))
		names := []string{}
		for k := range o {
			names = append(names, k)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s", format, got)
		}
	}
	if _, ok := In("xml", All()); ok {
		t.Error("xml is a format")
	}
}

func TestParse(t *testing.T) {
	tools := All()
	for _, c := range []struct{ tool, args, want string }{
		{ReadFile, `{"path":"/a","offset":3.0,"limit":null}`, ""},
		{TaskChanges, ``, ""},
		{TaskChanges, `null`, ""},
		{TaskChanges, `{}`, ""},
		{ReadFile, `{}`, "Invalid arguments: path is required"},
		{ReadFile, ``, "Invalid arguments: path is required"},
		{ReadFile, `{"path":7}`, "Invalid arguments: path must be a string"},
		{ReadFile, `{"path":null}`, "Invalid arguments: path is required"},
		{ReadFile, `{"path":"/a","offset":"1"}`, "Invalid arguments: offset must be an integer"},
		{ReadFile, `{"path":"/a","offset":1.5}`, "Invalid arguments: offset must be an integer"},
		{ReadFile, `{"path":"/a","offset":-1}`, "Invalid arguments: offset must be at least 0"},
		{ReadFile, `{"path":"/a","limit":0}`, "Invalid arguments: limit must be at least 1"},
		{ReadFile, `{"path":"/a","offset":1e30}`, "Invalid arguments: offset must be an integer"},
		{GrepFiles, `{"pattern":"x","max_results":5000}`, "Invalid arguments: max_results must be at most 1000"},
		{GrepFiles, `{"pattern":""}`, "Invalid arguments: pattern must not be empty"},
		{ReadFile, `{"path":"/a","mode":"r"}`, "Invalid arguments: mode is not an argument of read_file"},
		{ReadFile, `{"path":"/a","path":"/b"}`, "Invalid arguments: they must be one JSON object"},
		{ReadFile, `["/a"]`, "Invalid arguments: they must be one JSON object"},
		{ReadFile, `"{}"`, "Invalid arguments: they must be one JSON object"},
		{EditFile, `{"path":"/a","old_string":"x","new_string":"","replace_all":"yes"}`, "Invalid arguments: replace_all must be true or false"},
		{EditFile, `{"path":"/a","old_string":"x","new_string":"","replace_all":1}`, "Invalid arguments: replace_all must be true or false"},
	} {
		args, err := Find(tools, c.tool).Parse(json.RawMessage(c.args))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s: %v, %q, want %q", c.tool, c.args, args, got, c.want)
		}
	}
	args, _ := Find(tools, ReadFile).Parse(json.RawMessage(`{"path":"/a","offset":3.0}`))
	if args.Str("path") != "/a" || args.Int("offset", 0) != 3 || args.Int("limit", 2000) != 2000 || args.Has("limit") {
		t.Errorf("%v", args)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("read_file", `{"path":"/a"}`)
	f.Add("edit_file", `{"path":"/a","old_string":"\ud800"}`)
	f.Add("grep_files", `{"pattern":"(","max_results":1e3}`)
	tools := All()
	f.Fuzz(func(t *testing.T, name, raw string) {
		tl := Find(tools, name)
		if tl == nil {
			return
		}
		args, err := tl.Parse(json.RawMessage(raw))
		if err != nil {
			return
		}
		for i := range tl.Params {
			p := &tl.Params[i]
			if p.Required && !args.Has(p.Name) {
				t.Errorf("%s is missing in %s", p.Name, raw)
			}
		}
	})
}
