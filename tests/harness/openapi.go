package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// document is the OpenAPI document of a server, read once.
type document struct {
	once  sync.Once
	err   error
	paths []template
	error *openapi3.Schema // the common error
}

// template is one path of the document.
type template struct {
	pattern string
	form    *regexp.Regexp
	item    *openapi3.PathItem
}

// load reads and validates the document. The server is asked with its token,
// which it does not need.
func (s *Server) load() (*document, error) {
	d := s.doc
	d.once.Do(func() {
		req, err := http.NewRequest(http.MethodGet, s.URL+"/openapi.json", nil)
		if err != nil {
			d.err = err
			return
		}
		req.Host = "localhost" // whatever the address is
		res, err := s.Client.Do(req)
		if err != nil {
			d.err = err
			return
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			d.err = err
		case res.StatusCode != http.StatusOK:
			d.err = fmt.Errorf("openapi.json: %s", res.Status)
		default:
			d.err = d.parse(raw)
		}
	})
	return d, d.err
}

func (d *document) parse(raw []byte) error {
	raw, err := withTypes(raw)
	if err != nil {
		return err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		return fmt.Errorf("the document is OpenAPI %s, not 3.1", doc.OpenAPI)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return err
	}
	if ref := doc.Components.Schemas["Error"]; ref != nil {
		d.error = ref.Value
	} else {
		return errors.New("there is no schema Error")
	}
	for pattern, item := range doc.Paths.Map() {
		form, err := regexp.Compile("^" + regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllStringFunc(regexp.QuoteMeta(pattern), parameterForm) + "$")
		if err != nil {
			return err
		}
		d.paths = append(d.paths, template{pattern, form, item})
	}
	// The most literal first: /files/{path}/diff before /files/{path}.
	slices.SortFunc(d.paths, func(a, b template) int { return literal(b.pattern) - literal(a.pattern) })
	return nil
}

// withTypes names all types in properties whose schema says nothing but what they
// are for: JSON Schema takes every value there, the validator all but null.
func withTypes(raw []byte) ([]byte, error) {
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for key, x := range v {
				properties, _ := x.(map[string]any)
				for _, p := range properties {
					if p, ok := p.(map[string]any); ok && key == "properties" && len(p) == 1 && p["description"] != nil {
						p["type"] = []string{"array", "boolean", "null", "number", "object", "string"}
					}
				}
				walk(x)
			}
		}
	}
	walk(doc)
	return json.Marshal(doc)
}

// parameterForm: {path} holds slashes too, as the document's head says.
func parameterForm(quoted string) string {
	if quoted == `\{path\}` {
		return `.+`
	}
	return `[^/]+`
}

func literal(pattern string) int {
	return len(regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(pattern, ""))
}

// checkAnswer holds an answer against the document: a path and method that it
// knows, a status that the operation has, and a body of its schema (JSON Schema
// 2020-12). What is no route must answer 404 or 405 with the common error.
func (s *Server) checkAnswer(method, target string, r *Response) error {
	d, err := s.load()
	if err != nil {
		return err
	}
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	path := u.EscapedPath()
	var known bool
	for _, t := range d.paths {
		if !t.form.MatchString(path) {
			continue
		}
		known = true
		op := t.item.GetOperation(method)
		if op == nil && method == http.MethodHead {
			op = t.item.Get
		}
		if op != nil {
			return d.checkOperation(op, method, r)
		}
	}
	want := []int{http.StatusNotFound}
	if known {
		want = []int{http.StatusMethodNotAllowed, http.StatusNoContent}
	}
	if !slices.Contains(append(want, 401, 403, 429), r.Status) {
		return errors.New("the document has no such operation")
	}
	if len(r.Body) == 0 {
		return nil
	}
	return d.checkRefusal(path, r.Body)
}

// checkRefusal holds the answer to what is no route against its shape.
func (d *document) checkRefusal(path string, body []byte) error {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	if strings.HasPrefix(path, "/api/") {
		m, ok := v.(map[string]any)
		if sentence, isText := m["error"].(string); !ok || !isText || sentence == "" {
			return errors.New("under /api/ an error is {\"error\":sentence}")
		}
		return nil
	}
	return d.error.VisitJSON(v, openapi3.EnableJSONSchema2020())
}

func (d *document) checkOperation(op *openapi3.Operation, method string, r *Response) error {
	ref := op.Responses.Value(strconv.Itoa(r.Status))
	if ref == nil && r.Status != http.StatusNotModified && r.Status >= 400 {
		ref = op.Responses.Default()
	}
	if ref == nil || ref.Value == nil {
		if r.Status == http.StatusNotModified {
			return nil
		}
		return fmt.Errorf("%s has no status %d", op.OperationID, r.Status)
	}
	content := ref.Value.Content
	if method == http.MethodHead || len(r.Body) == 0 && len(content) == 0 {
		return nil
	}
	if len(content) == 0 {
		return fmt.Errorf("%s has no body for %d", op.OperationID, r.Status)
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", r.Header.Get("Content-Type"), err)
	}
	media := content.Get(mediaType)
	if media == nil {
		return fmt.Errorf("%s has no %s for %d", op.OperationID, mediaType, r.Status)
	}
	if mediaType != "application/json" || media.Schema == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(r.Body, &v); err != nil {
		return err
	}
	return media.Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
}
