package tracing

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector takes what is sent.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []request
	header http.Header
	path   string
	refuse int // so many times
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.header, c.path = r.Header.Clone(), r.URL.Path
		if c.refuse > 0 {
			c.refuse--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		var got request
		if err := json.NewDecoder(body).Decode(&got); err != nil {
			t.Error(err)
		}
		c.bodies = append(c.bodies, got)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) spans() map[string]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]span{}
	for _, b := range c.bodies {
		for _, s := range b.ResourceSpans[0].ScopeSpans[0].Spans {
			out[s.Name] = s
		}
	}
	return out
}

func attr(list []keyValue, key string) any {
	for _, kv := range list {
		if kv.Key == key {
			for _, v := range kv.Value {
				return v
			}
		}
	}
	return nil
}

// A request's span lies below the client's, what it took below that.
func TestSpans(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, y=2")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	c := newCollector(t)
	tracer, err := New(t.Context(), Options{Endpoint: c.URL, Version: "v1", Log: slog.New(slog.DiscardHandler)})
	need.NoError(t, err)
	r := httptest.NewRequest("PUT", "/tasks/t/content", nil)
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ctx, end := tracer.Request(r, "PUT", "/tasks/{id}/content", "req")
	tracer.Step(ctx, "commit", time.Now().Add(-time.Second), "umbra.commit", "abc")
	end(507, "insufficient_storage")
	tracer.Step(context.Background(), "no span", time.Now())
	need.NoError(t, tracer.Close(t.Context()))
	all := c.spans()
	req, step := all["PUT /tasks/{id}/content"], all["commit"]
	if req.TraceID != "0af7651916cd43dd8448eb211c80319c" || req.ParentID != "b7ad6b7169203331" || req.Kind != 2 || req.Status == nil || req.Status.Code != 2 {
		t.Errorf("%+v", req)
	}
	if attr(req.Attributes, "http.response.status_code") != "507" || attr(req.Attributes, "umbra.request_id") != "req" || attr(req.Attributes, "error.type") != "insufficient_storage" {
		t.Errorf("%+v", req.Attributes)
	}
	if step.ParentID != req.SpanID || step.TraceID != req.TraceID || attr(step.Attributes, "umbra.commit") != "abc" || step.Start >= req.Start {
		t.Errorf("%+v", step)
	}
	if len(all) != 2 {
		t.Errorf("%d spans", len(all))
	}
	if c.path != "/v1/traces" || c.header.Get("X-Key") != "a b" || c.header.Get("Y") != "2" || c.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", c.path, c.header)
	}
	res := c.bodies[0].ResourceSpans[0].Resource.Attributes
	if attr(res, "service.name") != "umbra" || attr(res, "service.version") != "v1" || attr(res, "deployment.environment") != "test" {
		t.Errorf("%+v", res)
	}
}

// A collector that is busy is asked again; one that is gone costs spans alone.
func TestCollectorsThatFail(t *testing.T) {
	c := newCollector(t)
	c.refuse = 1
	log := &strings.Builder{}
	one := func(endpoint string) {
		tracer, err := New(t.Context(), Options{Endpoint: endpoint, Log: slog.New(slog.NewTextHandler(log, nil))})
		need.NoError(t, err)
		_, end := tracer.Request(httptest.NewRequest("GET", "/", nil), "GET", "/", "r")
		end(200, "")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	one(c.URL)
	if len(c.spans()) != 1 || log.Len() > 0 {
		t.Errorf("%v %s", c.spans(), log)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	one(gone.URL)
	if !strings.Contains(log.String(), "traces were not taken") {
		t.Errorf("%s", log)
	}
}

func TestEndpoints(t *testing.T) {
	for _, name := range []string{"ENDPOINT", "TRACES_ENDPOINT"} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, "")
	}
	if Wanted() {
		t.Error("traces are off")
	}
	for _, c := range []struct{ set, all, traces, want string }{
		{"http://a:1", "", "", "http://a:1/v1/traces"}, {"http://a:1/v1/traces", "", "", "http://a:1/v1/traces"}, {"http://a:1/x/", "http://b", "http://c", "http://a:1/x/v1/traces"},
		{"", "http://b:2/", "", "http://b:2/v1/traces"}, {"", "http://b:2", "http://c:3/t", "http://c:3/t"}, {"", "", "", "http://localhost:4318/v1/traces"},
		{"", "b:2", "", ""}, {"", "", "ftp://c", ""},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.all)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.traces)
		if wanted := c.all+c.traces != ""; Wanted() != wanted {
			t.Errorf("%+v: wanted is %v", c, !wanted)
		}
		e, err := newExporter(c.set)
		if c.want == "" && err == nil || c.want != "" && (err != nil || e.url != c.want) {
			t.Errorf("%+v: %+v, %v", c, e, err)
		}
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if Wanted() {
		t.Error("it is disabled")
	}
}
