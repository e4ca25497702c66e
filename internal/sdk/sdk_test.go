package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/sandbox/luau"
)

const document1 = `openapi: 3.0.3
info: {title: t, version: "1"}
servers: [{url: "%URL%/v1"}]
paths:
  /transactions:
    get:
      operationId: listTransactions
      summary: All of them
      parameters:
        - {name: limit, in: query, schema: {type: integer}}
        - {name: tag, in: query, schema: {type: array, items: {type: string}}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: Host, in: header, schema: {type: string}}
      responses: {'200': {description: ok, content: {application/json: {schema: {type: object, properties: {items: {type: array, items: {type: object}}}}}}}}
    post:
      operationId: add-transaction
      requestBody: {required: true, content: {application/json: {schema: {type: object}}}}
      responses: {'201': {description: ok}}
  /users/{id}/notes:
    get:
      operationId: getUserNotes
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {'200': {description: ok}}
`

func loadFor(t *testing.T, url string, headers map[string]string) (*SDK, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "api.yaml")
	need.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(document1, "%URL%", url)), 0o600))
	return Load(Options{APIs: []API{{Name: "bank", Spec: file, Headers: headers}}, MaxBytes: 1 << 20, MaxCalls: 5, Timeout: 5e9,
		Env: func(name string) (string, bool) { return "s3cret", name == "TOKEN" }})
}

func op(t *testing.T, s *SDK, name string) *operation {
	t.Helper()
	for _, f := range s.functions {
		if f.path[len(f.path)-1] == name {
			return f.op
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

func TestRequests(t *testing.T) {
	s, err := loadFor(t, "https://api.example.org", map[string]string{"authorization": "Bearer ${TOKEN}"})
	need.NoError(t, err)
	for _, c := range []struct{ op, args, method, url, body, fails string }{
		{"list_transactions", `{"limit":10}`, "GET", "https://api.example.org/v1/transactions?limit=10", "", ""},
		{"list_transactions", `{"tag":["a","b&c"]}`, "GET", "https://api.example.org/v1/transactions?tag=a&tag=b%26c", "", ""},
		{"list_transactions", `{"tag":{}}`, "GET", "https://api.example.org/v1/transactions", "", ""},
		{"list_transactions", `{"limit":1.5}`, "", "", "", "'limit'"},
		{"list_transactions", `{"limit":"1"}`, "", "", "", "'limit'"},
		{"list_transactions", `{"limits":1}`, "", "", "", "unknown argument 'limits'"},
		{"list_transactions", `{"Host":"evil"}`, "", "", "", "unknown argument 'Host'"},
		{"list_transactions", `{"X-Trace":"a\r\nHost: evil"}`, "", "", "", "'X-Trace'"},
		{"add_transaction", `{}`, "", "", "", "missing argument 'body'"},
		{"add_transaction", `{"body":{"a":[1,{}]}}`, "POST", "https://api.example.org/v1/transactions", `{"a":[1,{}]}`, ""},
		{"get_user_notes", `{}`, "", "", "", "missing argument 'id'"},
		{"get_user_notes", `{"id":5}`, "", "", "", "'id'"},
		{"get_user_notes", `{"id":"a/../b?x#y"}`, "GET", "https://api.example.org/v1/users/a%2F..%2Fb%3Fx%23y/notes", "", ""},
		{"get_user_notes", `{"id":"@evil.com/"}`, "GET", "https://api.example.org/v1/users/%40evil.com%2F/notes", "", ""},
		{"get_user_notes", `{"id":".hidden"}`, "GET", "https://api.example.org/v1/users/%2Ehidden/notes", "", ""},
		{"get_user_notes", `{"id":".."}`, "", "", "", "'id'"},
		{"get_user_notes", `{"id":""}`, "", "", "", "'id'"},
	} {
		var args map[string]json.RawMessage
		need.NoError(t, json.Unmarshal([]byte(c.args), &args))
		req, err := op(t, s, c.op).request(args)
		if c.fails != "" {
			if raised, ok := errors.AsType[*luau.LuaError](err); !ok || !strings.Contains(raised.Message, c.fails) {
				t.Errorf("%s %s: %v", c.op, c.args, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", c.op, c.args, err)
			continue
		}
		body := ""
		if req.Body != nil {
			raw, _ := io.ReadAll(req.Body)
			body = string(raw)
		}
		if req.Method != c.method || req.URL.String() != c.url || body != c.body || req.Host != "api.example.org" || req.Header.Get("Authorization") != "Bearer s3cret" {
			t.Errorf("%s %s: %s %s %q %v", c.op, c.args, req.Method, req.URL, body, req.Header)
		}
	}
	if d := s.Declarations(); !strings.Contains(d, "list_transactions: (args: {") || strings.Contains(d, "s3cret") || !strings.Contains(d, "limit: number?") {
		t.Error(d)
	}
}

func TestLoadRefuses(t *testing.T) {
	if _, err := loadFor(t, "https://x", map[string]string{"A": "${MISSING}"}); err == nil || !strings.Contains(err.Error(), "MISSING") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"{", "{}", "openapi: 2.0", "swagger: '2.0'", "openapi: 3.0.0\ninfo: {title: t, version: '1'}\npaths: {}"} {
		file := filepath.Join(t.TempDir(), "broken.yaml")
		need.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := Load(Options{APIs: []API{{Name: "a", Spec: file}}}); err == nil || !strings.Contains(err.Error(), "broken.yaml") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"listTransactions": "list_transactions", "ListUsers": "list_users", "getHTTPStatus": "get_http_status", "list-users": "list_users",
		"users.list": "users_list", "get /a/{id}": "get_a_id", "2fa": "_2fa", "a__b": "a_b", "v2List": "v2_list"} {
		if got := snake(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// TestOrigin holds that a call reaches its own origin only, whatever it answers.
func TestOrigin(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host was reached") }))
	defer other.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/v1/users/away/notes":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/v1/users/near/notes":
			http.Redirect(w, r, "/v1/users/end/notes", http.StatusFound)
		case "/v1/users/echo/notes":
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.Header.Get("Authorization")+strings.Repeat("x", 1000))
		case "/v1/users/large/notes":
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20+1))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok":true}`)
		}
	}))
	defer api.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	s, err := loadFor(t, api.URL, map[string]string{"Authorization": "Bearer ${TOKEN}"})
	need.NoError(t, err)
	defer s.Close()
	if !luau.Embedded() {
		need.Missing(t, luau.ErrNotEmbedded.Error())
	}
	e := luau.New(luau.Options{CacheDir: filepath.Join(os.TempDir(), "umbra-luau-test")})
	defer e.Close(context.Background())
	calls := s.Begin()
	out, err := e.Run(context.Background(), luau.Program{Functions: calls.Functions(), Source: `
		local r = {}
		for _, id in {"near", "away", "echo", "large"} do
			local ok, v = pcall(sdk.get_user_notes, {id = id})
			r[#r + 1] = if ok then json.encode(v) else v
		end
		pcall(sdk.get_user_notes, {id = "x"})
		r[#r + 1] = select(2, pcall(sdk.get_user_notes, {id = "x"}))
		r[#r + 1] = select(2, pcall(sdk.get_user_notes, 5))
		return r`})
	if err != nil || out.Err != nil {
		t.Fatal(err, out.Err)
	}
	var got []string
	need.NoError(t, json.Unmarshal(out.Result, &got))
	for i, want := range []string{`{"ok":true}`, "HTTP 302 from get_user_notes", "HTTP 418 from get_user_notes: ***xxx", "larger than", "API call limit exceeded (5 calls)", "one table"} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	if calls.Calls() != 5 || strings.Contains(string(out.Result), "s3cret") {
		t.Errorf("%d calls, %s", calls.Calls(), out.Result)
	}
}
