package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// unhandled begins what the SDK answers, as plain text and 400, to a method that
// it does not know, in revisions before sessionless.
const unhandled = "JSON RPC not handled: "

// jsonErrors makes a JSON-RPC error of that answer: a client that asks for a
// method of another revision reads the error's code (JSON-RPC 2.0, 5.1).
type jsonErrors struct {
	http.ResponseWriter
	id   json.RawMessage // of the request
	held *bytes.Buffer   // the text of a 400, until it is known what it is
}

// Unwrap is for http.ResponseController.
func (w *jsonErrors) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is http.Flusher's.
func (w *jsonErrors) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok && w.held == nil {
		f.Flush()
	}
}

// WriteHeader holds a plain 400 back.
func (w *jsonErrors) WriteHeader(status int) {
	if status == http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") && w.held == nil {
		w.held = &bytes.Buffer{}
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *jsonErrors) Write(p []byte) (int, error) {
	if w.held != nil {
		return w.held.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// end sends what was held back.
func (w *jsonErrors) end() {
	if w.held == nil {
		return
	}
	text := w.held.String()
	if len(w.id) == 0 || !strings.HasPrefix(text, unhandled) {
		w.ResponseWriter.WriteHeader(http.StatusBadRequest)
		_, _ = w.ResponseWriter.Write(w.held.Bytes()) // the client is gone
		return
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": w.id,
		"error": map[string]any{"code": jsonrpc.CodeMethodNotFound, "message": strings.TrimSpace(text)}})
	if err != nil {
		body = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"method not found"}}`, jsonrpc.CodeMethodNotFound)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	w.ResponseWriter.WriteHeader(http.StatusOK)
	_, _ = w.ResponseWriter.Write(body) // the client is gone
}

// idOf gives the id of a JSON-RPC request; nil where the body is none.
func idOf(body []byte) json.RawMessage {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(body, &m) != nil || m.Method == "" || string(m.ID) == "null" {
		return nil
	}
	return m.ID
}
