package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans as OTLP over HTTP in its JSON form
// (opentelemetry.io/docs/specs/otlp). The library's own exporter speaks protobuf,
// and brings gRPC with it: a third of the program, and of the memory of each of its
// processes, for what is mostly off.
type exporter struct {
	url     string
	headers map[string]string
	gzip    bool
	client  *http.Client
}

const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	tracesPath      = "/v1/traces"
)

// signal gives a variable of the environment for traces, or for all signals.
func signal(name string) string {
	if v := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
		return v
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// newExporter reads the environment's other settings: headers, timeout,
// compression.
func newExporter(endpoint string) (*exporter, error) {
	e := &exporter{url: endpoint, headers: map[string]string{}, gzip: signal("COMPRESSION") == "gzip"}
	switch whole := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); {
	case endpoint != "":
		if !strings.HasSuffix(endpoint, tracesPath) {
			e.url = strings.TrimSuffix(endpoint, "/") + tracesPath
		}
	case whole != "":
		e.url = whole // as it is, by the specification
	default:
		base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
		if base == "" {
			base = defaultEndpoint
		}
		e.url = strings.TrimSuffix(base, "/") + tracesPath
	}
	if u, err := url.Parse(e.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as %s", e.url, defaultEndpoint)
	}
	for pair := range strings.SplitSeq(signal("HEADERS"), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if ok && err == nil {
			e.headers[strings.TrimSpace(name)] = value
		}
	}
	timeout := defaultTimeout
	if ms, err := strconv.Atoi(signal("TIMEOUT")); err == nil && ms > 0 {
		timeout = time.Duration(ms) * time.Millisecond
	}
	e.client = &http.Client{Timeout: timeout}
	return e, nil
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	body, err := json.Marshal(requestOf(spans))
	if err != nil {
		return err
	}
	if e.gzip {
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		if _, err := z.Write(body); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		body = small.Bytes()
	}
	wait := 500 * time.Millisecond
	for try := 1; ; try++ {
		again, err := e.send(ctx, body)
		if err == nil || !again || try == tries {
			return err
		}
		select {
		case <-time.After(wait):
			wait *= 4
		case <-ctx.Done():
			return err
		}
	}
}

// tries is how often spans are sent that a collector has put off.
const tries = 3

func (e *exporter) send(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if e.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range e.headers {
		req.Header.Set(name, value)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("the collector answers %s", res.Status)
	}
	return false, fmt.Errorf("the collector answers %s", res.Status)
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// The messages of trace.proto, as their JSON form has them.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributes   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	attributes struct {
		Attributes []keyValue `json:"attributes"`
	}
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		State      string     `json:"traceState,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Status     *status    `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
)

// requestOf makes the message of spans, which are all of one resource and scope.
func requestOf(spans []sdk.ReadOnlySpan) request {
	list := make([]span, len(spans))
	for i, s := range spans {
		list[i] = spanOf(s)
	}
	return request{[]resourceSpans{{Resource: attributes{attributesOf(spans[0].Resource().Attributes())},
		ScopeSpans: []scopeSpans{{Scope: scope{spans[0].InstrumentationScope().Name}, Spans: list}}}}}
}

func spanOf(s sdk.ReadOnlySpan) span {
	c := s.SpanContext()
	out := span{TraceID: c.TraceID().String(), SpanID: c.SpanID().String(), State: c.TraceState().String(), Name: s.Name(),
		Kind:  int(s.SpanKind()), // the numbers are those of the protocol
		Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10),
		Attributes: attributesOf(s.Attributes())}
	if p := s.Parent(); p.HasSpanID() {
		out.ParentID = p.SpanID().String()
	}
	if st := s.Status(); st.Code == codes.Error {
		out.Status = &status{Code: 2, Message: st.Description} // STATUS_CODE_ERROR
	}
	return out
}

func attributesOf(list []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(list))
	for i, kv := range list {
		value := map[string]any{}
		switch kv.Value.Type() {
		case attribute.INT64:
			value["intValue"] = strconv.FormatInt(kv.Value.AsInt64(), 10)
		case attribute.BOOL:
			value["boolValue"] = kv.Value.AsBool()
		case attribute.FLOAT64:
			value["doubleValue"] = kv.Value.AsFloat64()
		default:
			value["stringValue"] = kv.Value.String()
		}
		out[i] = keyValue{string(kv.Key), value}
	}
	return out
}
