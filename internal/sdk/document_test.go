package sdk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

const head30 = "openapi: 3.0.3\ninfo: {title: t, version: '1'}\nservers: [{url: 'https://x.example'}]\n"
const head31 = "openapi: 3.1.0\ninfo: {title: t, version: '1'}\nservers: [{url: 'https://x.example'}]\n"

// loadFiles loads api.yaml of a set of files by name.
func loadFiles(t *testing.T, files map[string]string) (*SDK, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		need.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "%DIR%", dir)), 0o600))
	}
	return Load(Options{APIs: []API{{Name: "a", Spec: filepath.Join(dir, "api.yaml")}}})
}

// TestDocuments holds what declarations are made of documents, with references
// of each kind.
func TestDocuments(t *testing.T) {
	post := "paths: {/a: {post: {operationId: f, requestBody: %S%, responses: {}}}}\n"
	body := func(head, schema, more string) map[string]string {
		return map[string]string{"api.yaml": head + strings.ReplaceAll(post, "%S%", "{content: {application/json: {schema: "+schema+"}}}") + more}
	}
	with := func(files map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the operations' lines
	}{
		"type":            {body(head30, "{type: string}", ""), `f: (args: { body: string? }?) -> any,`},
		"nullable":        {body(head30, "{type: object, required: [a], properties: {a: {type: string, nullable: true}}}", ""), `f: (args: { body: { a: string? }? }?) -> any,`},
		"type array":      {body(head31, "{type: object, required: [a, b], properties: {a: {type: [string, 'null']}, b: {type: [integer, string]}}}", ""), `f: (args: { body: ({ a: string?, b: number | string })? }?) -> any,`},
		"boolean schema":  {body(head31, "{type: object, properties: {a: true}}", ""), `f: (args: { body: { a: any }? }?) -> any,`},
		"enum":            {body(head30, "{enum: [a, b-c]}", ""), `f: (args: { body: ("a" | "b-c")? }?) -> any,`},
		"enum of dates":   {body(head30, "{enum: [2024-01-02]}", ""), `f: (args: { body: "2024-01-02"? }?) -> any,`},
		"enum of numbers": {body(head30, "{type: integer, enum: [1, 2]}", ""), `f: (args: { body: number? }?) -> any,`},
		"local":           {body(head30, "{$ref: '#/components/schemas/S'}", "components: {schemas: {S: {$ref: '#/components/schemas/T'}, T: {type: array, items: {type: boolean}}}}"), `f: (args: { body: { boolean }? }?) -> any,`},
		"escaped pointer": {body(head30, "{$ref: '#/components/schemas/a~1b%7Bc'}", "components: {schemas: {'a/b{c': {type: boolean}}}"), `f: (args: { body: boolean? }?) -> any,`},
		"into a path":     {map[string]string{"api.yaml": head30 + "paths: {/b: {get: {operationId: f, parameters: [{name: q, in: query, schema: {type: integer}}, {name: r, in: query, schema: {$ref: '#/paths/~1b/get/parameters/0/schema'}}], responses: {}}}}"}, `f: (args: { q: number?, r: number? }?) -> any,`},
		"siblings 3.0":    {body(head30, "{$ref: '#/components/schemas/S', nullable: true, type: integer}", "components: {schemas: {S: {type: string}}}"), `f: (args: { body: string? }?) -> any,`},
		"siblings 3.1":    {body(head31, "{type: object, required: [a, b], properties: {a: {$ref: '#/components/schemas/S', nullable: true, type: integer}, b: {$ref: '#/components/schemas/S'}}}", "components: {schemas: {S: {type: string}}}"), `f: (args: { body: { a: string, b: string }? }?) -> any,`},
		"circular": {body(head30, "{$ref: '#/components/schemas/S'}", "components: {schemas: {S: {type: object, properties: {next: {$ref: '#/components/schemas/S'}}}}}"),
			`f: (args: { body: { next: { next: { next: { next: { next: { next: any }? }? }? }? }? }? }?) -> any,`},
		"file":          {with(body(head30, "{$ref: 'sub/s.yaml'}", ""), "sub/s.yaml", "type: object\nproperties: {a: {$ref: 't.json'}, b: {$ref: '../u.yaml#/U'}}", "sub/t.json", `{"type":"integer"}`, "u.yaml", "U: {$ref: '#/V'}\nV: {type: string}"), `f: (args: { body: { a: number?, b: string? }? }?) -> any,`},
		"file of file":  {with(body(head30, "{$ref: 'sub/s.yaml'}", ""), "sub/s.yaml", "type: object\nproperties: {a: {$ref: '#/x-d/A'}}\nx-d: {A: {type: integer}}"), `f: (args: { body: { a: number? }? }?) -> any,`},
		"file of root":  {with(body(head30, "{$ref: 'sub/s.yaml'}", "components: {schemas: {A: {type: integer}}}"), "sub/s.yaml", "type: object\nproperties: {a: {$ref: '#/components/schemas/A'}}"), `f: (args: { body: { a: number? }? }?) -> any,`},
		"document":      {with(body(head30, "{$ref: 'o.yaml#/components/schemas/O'}", ""), "o.yaml", head30+"paths: {}\ncomponents: {schemas: {O: {$ref: '#/components/schemas/P'}, P: {type: integer}}}"), `f: (args: { body: number? }?) -> any,`},
		"file URL":      {with(body(head30, "{$ref: 'file://%DIR%/s.yaml'}", ""), "s.yaml", "type: integer"), `f: (args: { body: number? }?) -> any,`},
		"absolute path": {with(body(head30, "{$ref: '%DIR%/s.yaml'}", ""), "s.yaml", "type: integer"), `f: (args: { body: number? }?) -> any,`},
		"circle of files": {with(body(head30, "{$ref: 's.yaml'}", ""), "s.yaml", "type: array\nitems: {$ref: 't.yaml'}", "t.yaml", "type: array\nitems: {$ref: 's.yaml'}"),
			`f: (args: { body: { { { { { { any } } } } } }? }?) -> any,`},
		"shared parameters": {map[string]string{"api.yaml": head30 + `
paths:
  /a/{id}:
    parameters: [{$ref: '#/components/parameters/id'}, {name: q, in: query, schema: {type: string}}, {name: c, in: cookie}]
    get: {operationId: f, parameters: [{name: q, in: query, required: true, schema: {type: integer}}], responses: {'200': {$ref: '#/components/responses/R'}}}
    put: {operationId: g, summary: " G \n it ", requestBody: {$ref: '#/components/requestBodies/B'}, responses: {default: {content: {text/plain: {}, application/problem+json: {schema: {type: string}}}}}}
components:
  parameters: {id: {name: id, in: path, required: true, schema: {type: string}}}
  requestBodies: {B: {required: true, content: {text/plain: {schema: {type: string}}, application/json: {schema: {type: number}}}}}
  responses: {R: {description: r, content: {application/json: {schema: {type: boolean}}}}}`},
			"f: (args: { id: string, q: number }) -> boolean,\n-- G it\ng: (args: { body: number, id: string, q: string? }) -> string,"},
		"path items": {map[string]string{"api.yaml": head30 + "paths: {'/a/{n}': {$ref: 'p.yaml'}, /b: {$ref: 'q.yaml#/Q'}, x-c: {get: {}}}",
			"p.yaml": "get: {description: \"long\\nmore\", parameters: [{name: n, in: path, schema: {$ref: n.yaml}}], responses: {200: {description: d}}}", "n.yaml": "type: integer",
			"q.yaml": "Q: {delete: {responses: {}}}"}, "delete_b: () -> any,\n-- long\nget_a_n: (args: { n: number }) -> any,"},
		"anchors":  {map[string]string{"api.yaml": head30 + "x-p: &p {name: q, in: query}\nx-o: &o {operationId: f, parameters: [*p]}\npaths: {/a: {get: {<<: *o, responses: {}}}}"}, `f: (args: { q: any? }?) -> any,`},
		"JSON":     {map[string]string{"api.yaml": "\t{\"openapi\":\"3.1.0\",\n\t\"info\":{\"title\":\"\\ud83d\\ude00\",\"version\":\"1\"},\"servers\":[{\"url\":\"https:\\/\\/x\"}],\"paths\":{\"/a\":{\"get\":{\"operationId\":\"f\",\"summary\":\"\\ud83d\\ude00\",\"responses\":{}}}}}"}, "-- \U0001F600\nf: () -> any,"},
		"example":  {body(head30, "{type: object, example: {$ref: nowhere.yaml}, default: {$ref: nowhere.yaml}, properties: {example: {type: string}, $ref: {type: integer}}}", "x-a: {$ref: nowhere.yaml}"), `f: (args: { body: { ["$ref"]: number?, example: string? }? }?) -> any,`},
		"no paths": {map[string]string{"api.yaml": head31}, ""},
		"null":     {map[string]string{"api.yaml": head31 + "paths: {/a: {get: null, post: {operationId: f, parameters: null, requestBody: null, responses: null}}, /b: null}"}, "f: () -> any,"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := loadFiles(t, c.files)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(s.Declarations()) {
				if strings.HasPrefix(line, "\t") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

// TestDocumentsRefused holds what is an error, by a part of its text. All name
// the setting and the document.
func TestDocumentsRefused(t *testing.T) {
	ref := func(to string) string {
		return head30 + "paths: {/a: {get: {responses: {'200': {description: d, content: {application/json: {schema: {$ref: '" + to + "'}}}}}}}}\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"http":            {ref("http://127.0.0.1:1/x.yaml"), "a reference leads out to the network"},
		"https pointer":   {ref("https://127.0.0.1:1/x.yaml#/a"), "a reference leads out to the network"},
		"file with host":  {ref("file://127.0.0.1/x.yaml"), "a reference leads out to the network"},
		"host":            {ref("//127.0.0.1/x.yaml"), "a reference leads out to the network"},
		"no file":         {ref("nowhere.yaml"), "no such file"},
		"directory":       {ref("."), "directory"},
		"no key":          {ref("#/components/schemas/X"), "#/components/schemas/X"},
		"no fragment":     {ref("#X"), "#X"},
		"index":           {ref("#/servers/5"), "#/servers/5"},
		"no object":       {ref("#/info/title"), "a schema must be an object"},
		"self":            {ref("#/x") + "x: {$ref: '#/x'}", "lead to one another"},
		"loop":            {ref("#/x") + "x: {$ref: '#/y'}\ny: {$ref: '#/x'}", "lead to one another"},
		"bad escape":      {ref("#/a%zz"), ""},
		"parameter":       {head30 + "paths: {/a: {parameters: [{$ref: '#/p'}], get: {responses: {}}}}", "#/p"},
		"swagger":         {"swagger: '2.0'\ninfo: {title: t, version: '1'}\npaths: {}", "not an OpenAPI 3 document"},
		"openapi 2":       {"openapi: '2.0'", "not an OpenAPI 3 document"},
		"number":          {"openapi: 3.0\npaths: {}", ""},
		"empty":           {"", "not an OpenAPI 3 document"},
		"list":            {"[]", ""},
		"text":            {"hello", ""},
		"broken":          {head30 + "paths: {", ""},
		"twice":           {head30 + "paths: {}\npaths: {}", ""},
		"paths":           {head30 + "paths: []", ""},
		"item":            {head30 + "paths: {/a: 5}", ""},
		"operation":       {head30 + "paths: {/a: {get: []}}", ""},
		"parameters":      {head30 + "paths: {/a: {get: {parameters: {a: b}, responses: {}}}}", ""},
		"required":        {head30 + "paths: {/a: {get: {parameters: [{name: a, in: query, required: 'yes'}], responses: {}}}}", ""},
		"type":            {head30 + "paths: {/a: {get: {parameters: [{name: a, in: query, schema: {type: 5}}], responses: {}}}}", ""},
		"schema":          {head30 + "paths: {/a: {get: {parameters: [{name: a, in: query, schema: text}], responses: {}}}}", ""},
		"properties":      {head30 + "paths: {/a: {get: {parameters: [{name: a, in: query, schema: {properties: []}}], responses: {}}}}", ""},
		"same name":       {head30 + "paths: {/a: {get: {operationId: f, responses: {}}}, /b: {get: {operationId: F, responses: {}}}}", "have the same name f"},
		"no server":       {"openapi: 3.0.0\ninfo: {title: t, version: '1'}\npaths: {}", "the document names no server"},
		"bad server":      {"openapi: 3.0.0\ninfo: {title: t, version: '1'}\nservers: [{url: /v1}]\npaths: {}", "set base_url"},
		"aliases":         {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", "aliasing"},
		"alias of itself": {head30 + "paths: &p {/a: *p}", ""},
		"deep":            {strings.Repeat("[", 200000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadFiles(t, map[string]string{"api.yaml": c.text})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "scripts.apis, item 1 (") || !strings.Contains(err.Error(), "api.yaml") {
				t.Errorf("%.300v", err)
			}
		})
	}
}

func TestServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api.yaml")
	need.NoError(t, os.WriteFile(file, []byte("openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths: {/a: {get: {operationId: f}}}\nservers:\n- {url: 'https://{host}:{port}/{none}v1', variables: {host: {default: x.example}, port: {default: '8443', enum: ['8443']}, none: {default: ''}}}\n- {url: 'https://other'}"), 0o600))
	for base, want := range map[string]string{"": "https://x.example:8443/v1/a", "http://y.example/b/": "http://y.example/b/a"} {
		s, err := Load(Options{APIs: []API{{Name: "a", Spec: file, BaseURL: base}}})
		need.NoError(t, err)
		req, err := op(t, s, "f").request(nil)
		need.NoError(t, err)
		if req.URL.String() != want {
			t.Errorf("%q: %s, want %s", base, req.URL, want)
		}
	}
}

// FuzzDocument holds that no document makes the package panic.
func FuzzDocument(f *testing.F) {
	f.Add(head30 + "paths: {/a: {$ref: '#/x', get: {parameters: [{$ref: '#/components/parameters/p/x'}], responses: {200: {content: {a/json: {schema: {$ref: '#/paths/~1a'}}}}}}}}\ncomponents: {parameters: {p: {$ref: '#/components/parameters/p/x'}}}")
	f.Add(head31 + "paths: {/a: {put: {requestBody: {content: {a: {schema: {type: [a], properties: {a: true}, items: {}}}}}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "api.yaml")
		need.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if s, err := Load(Options{APIs: []API{{Name: "a", Spec: file, BaseURL: "http://x"}}}); err == nil {
			s.Close()
		}
	})
}
