package stdio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
)

func answer(status int, kind, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
}

// run carries lines through a bridge, and gives what came out, sorted, and the
// headers that went.
func run(t *testing.T, in string, send func(m map[string]any, h http.Header) (*http.Response, error)) (out []string, headers []http.Header) {
	t.Helper()
	var mu sync.Mutex
	var buf bytes.Buffer
	err := Run(context.Background(), strings.NewReader(in), &buf, Options{MaxMessage: 1000, Send: func(_ context.Context, method string, h http.Header, body []byte) (*http.Response, error) {
		if method != http.MethodPost {
			return answer(405, "text/plain", ""), nil
		}
		mu.Lock()
		headers = append(headers, h)
		mu.Unlock()
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		return send(m, h)
	}})
	need.NoError(t, err)
	for line := range strings.Lines(buf.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %q", line)
		}
		out = append(out, strings.TrimSpace(line))
	}
	slices.Sort(out)
	return out, headers
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		res  *http.Response
		err  error
		want []string
	}{
		{"JSON", answer(200, "application/json", "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}"), nil, []string{`{"jsonrpc":"2.0","id":1,"result":{}}`}},
		{"stream", answer(200, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n: beat\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n"), nil,
			[]string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"n"}`}},
		{"stream without the answer", answer(200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"), nil,
			[]string{`{"error":{"code":-32603,"message":"The server gave no answer."},"id":1,"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","method":"n"}`}},
		{"error of the protocol", answer(400, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`), nil, []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`}},
		{"error of the server", answer(404, "application/json", `{"error":"toolset_not_found","detail":"The toolset does not exist."}`), nil,
			[]string{`{"error":{"code":-32603,"message":"The toolset does not exist."},"id":1,"jsonrpc":"2.0"}`}},
		{"plain text", answer(502, "text/html", "<h1>oh\n</h1>"), nil, []string{`{"error":{"code":-32603,"message":"Bad Gateway: \u003ch1\u003eoh\n\u003c/h1\u003e"},"id":1,"jsonrpc":"2.0"}`}},
		{"nothing", answer(202, "", ""), nil, []string{`{"error":{"code":-32603,"message":"The server gave no answer."},"id":1,"jsonrpc":"2.0"}`}},
		{"no server", nil, errors.New("refused"), []string{`{"error":{"code":-32603,"message":"Refused."},"id":1,"jsonrpc":"2.0"}`}},
	} {
		got, _ := run(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n", func(map[string]any, http.Header) (*http.Response, error) { return c.res, c.err })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`not json`, strings.Repeat("x", 2000), "",
	}, "\n")
	out, headers := run(t, in, func(m map[string]any, h http.Header) (*http.Response, error) {
		if m["id"] == nil {
			return answer(202, "", ""), nil
		}
		id, _ := json.Marshal(m["id"])
		res := answer(200, "application/json", `{"jsonrpc":"2.0","id":`+string(id)+`,"result":{"protocolVersion":"2025-11-25"}}`)
		res.Header.Set("Mcp-Session-Id", "s1")
		return res, nil
	})
	if len(out) != 4 || len(headers) != 3 {
		t.Fatalf("%q, %v", out, headers)
	}
	if h := headers[0]; h.Get("Mcp-Session-Id") != "" || h.Get("Mcp-Protocol-Version") != "" {
		t.Errorf("initialize: %v", h)
	}
	if h := headers[1]; h.Get("Mcp-Session-Id") != "s1" || h.Get("Mcp-Protocol-Version") != "2025-11-25" || h.Get("Mcp-Method") != "" {
		t.Errorf("initialized: %v", h)
	}
	if h := headers[2]; h.Get("Mcp-Session-Id") != "" || h.Get("Mcp-Method") != "tools/call" || h.Get("Mcp-Name") != "t" || h.Get("Idempotency-Key") == "" {
		t.Errorf("call: %v", h)
	}
}

// Whatever the server streams, what comes out are whole lines of JSON.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"jsonrpc\":\"2.0\",\"id\":1}\n\n")
	f.Add("data:1\r\ndata: 2\n\nevent: x\nid:\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		out, _ := run(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`, func(map[string]any, http.Header) (*http.Response, error) {
			return answer(200, "text/event-stream", stream), nil
		})
		if len(out) == 0 {
			t.Error("the call was not answered")
		}
	})
}
