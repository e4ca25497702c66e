package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"umbra/internal/strictjson"
)

// envelope is the form of a request. A name in params means the same in each method. Those
// of a tool are the tool's matter.
type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  *struct {
		Meta         map[string]any `json:"_meta"`
		Revision     string         `json:"protocolVersion"`
		Capabilities map[string]any `json:"capabilities"`
		Client       struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"clientInfo"`
		Name   string `json:"name"`
		URI    string `json:"uri"`
		Cursor string `json:"cursor"`
		Level  string `json:"level"`
		Ref    struct {
			Type string `json:"type"`
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
	} `json:"params"`
}

// misshapen answers a body that is no message, or one with values of wrong types, and
// reports whether it did: the SDK's own errors about that name types of Go.
func misshapen(c *gin.Context, body []byte, id json.RawMessage) bool {
	list := make([]envelope, 1)
	var err error
	if body = bytes.TrimSpace(body); bytes.HasPrefix(body, []byte("[")) {
		err = strictjson.Unmarshal(body, &list)
	} else {
		err = strictjson.Unmarshal(body, &list[0])
	}
	if err == nil && slices.ContainsFunc(list, func(e envelope) bool {
		return e.Method == "completion/complete" && e.Params != nil && e.Params.Ref.Type == ""
	}) {
		err = &strictjson.TypeError{Field: "params.ref.type", Want: "a string"}
	}
	if err == nil {
		return false
	}
	status, code, text := http.StatusBadRequest, jsonrpc.CodeParseError, "Parse error: "
	if mistyped, ok := errors.AsType[*strictjson.TypeError](err); ok {
		code, text = jsonrpc.CodeInvalidRequest, ""
		if strings.HasPrefix(mistyped.Field, "params") && len(id) > 0 {
			status, code = http.StatusOK, jsonrpc.CodeInvalidParams
		}
	}
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	c.JSON(status, map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text + err.Error()}})
	return true
}
