package wire_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"umbra/httpapi"
	"umbra/httpapi/code"
	"umbra/httpapi/files"
	"umbra/httpapi/sessions"
	"umbra/httpapi/tasks"
	"umbra/httpapi/workspaces"
	"umbra/internal/need"
)

type noAnswers struct{ httpapi.AnswerStore }

// The parts of all dialects and the frame make one valid document, and each
// route is in it.
func TestDocument(t *testing.T) {
	s, err := httpapi.New(httpapi.Options{Version: "test", Log: slog.New(slog.DiscardHandler), MaxJSON: 1 << 20, Answers: noAnswers{}},
		tasks.New(nil, nil, tasks.Limits{}), files.New(nil, nil, 0), sessions.New(nil, nil, nil, sessions.Limits{}), workspaces.New(nil, nil, nil, nil), code.New(code.Options{}))
	need.NoError(t, err)
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "http://127.0.0.1/openapi.json", nil)
	s.ServeHTTP(rec, req)
	if rec.Code != 200 {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	doc, err := openapi3.NewLoader().LoadFromData(rec.Body.Bytes())
	need.NoError(t, err)
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	var raw struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	need.NoError(t, json.Unmarshal(rec.Body.Bytes(), &raw))
	for _, rt := range s.Routes() {
		method, pattern, _ := strings.Cut(rt, " ")
		pattern = strings.ReplaceAll(pattern, "...}", "}")
		if _, ok := raw.Paths[pattern][strings.ToLower(method)]; !ok {
			t.Errorf("%s is not in the document", rt)
		}
	}
}
