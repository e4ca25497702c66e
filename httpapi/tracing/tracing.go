// Package tracing sends traces to an OpenTelemetry collector, by OTLP over HTTP:
// a span for each request, with what its commit and its disk took below. It is
// the one package that knows OpenTelemetry.
//
// Where it is off it is not called: the frame and the write service have a nil
// function instead, and nothing is asked, timed or carried.
package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of a Tracer.
type Options struct {
	// Endpoint is the collector's URL, http://HOST:4318; empty: what the standard
	// OTEL_EXPORTER_OTLP_* environment says.
	Endpoint string
	Version  string // of the program
	Log      *slog.Logger
}

// Wanted reports whether the environment asks for traces.
func Wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Tracer makes spans and sends them on, in the background. A collector that does
// not answer costs spans, never a request.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	context  propagation.TextMapPropagator
}

// New makes a tracer; Close ends it. What the environment says of sampling,
// headers, limits and the resource holds.
func New(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := newExporter(o.Endpoint)
	if err != nil {
		return nil, err
	}
	// The environment's own come last: they win.
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "umbra"), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(quiet{exporter, o.Log}), sdk.WithResource(res))
	return &Tracer{provider: p, tracer: p.Tracer("umbra"), context: propagation.TraceContext{}}, nil
}

// quiet logs spans that could not be sent in the server's own log.
type quiet struct {
	sdk.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdk.SpanExporter.
func (q quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := q.SpanExporter.ExportSpans(ctx, spans); err != nil {
		q.log.LogAttrs(ctx, slog.LevelWarn, "traces were not taken", slog.Int("spans", len(spans)), slog.String("error", err.Error()))
	}
	return nil // logged
}

// Close sends what waits, within ctx, and ends.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // a collector that is gone does not hold a stop up
}

// Request begins a request's span, below the one that the client names
// (traceparent). end is called once, with the status.
func (t *Tracer) Request(r *http.Request, method, route, requestID string) (ctx context.Context, end func(status int, code string)) {
	ctx = t.context.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.String("umbra.request_id", requestID)))
	return ctx, func(status int, code string) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if code != "" {
			span.SetAttributes(attribute.String("error.type", code))
		}
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, code)
		}
		span.End()
	}
}

// Step records a part of the span in ctx that began then and ends now. attrs are
// names and values in turn. Outside of a request's span it does nothing.
func (t *Tracer) Step(ctx context.Context, name string, began time.Time, attrs ...string) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	kv := make([]attribute.KeyValue, 0, len(attrs)/2)
	for i := 0; i+1 < len(attrs); i += 2 {
		kv = append(kv, attribute.String(attrs[i], attrs[i+1]))
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(kv...))
	span.End()
}
