package upkeep

import (
	_ "embed"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/access"
	"umbra/internal/audit"
	"umbra/internal/errs"
)

//go:embed tokens.yaml
var tokensDocument []byte

// Tokens is the dialect of umbra token: tokens are added, listed and removed
// while the server runs.
type Tokens struct {
	Book *access.Book
	// Needed says that the server listens where others reach it, so that tokens
	// are not turned off.
	Needed bool
}

// OpenAPI gives the dialect's part of the document.
func (d *Tokens) OpenAPI() []byte { return tokensDocument }

// Register adds the dialect's routes. None of them takes an Idempotency-Key: the
// kept answer would hold the secret.
func (d *Tokens) Register(r *httpapi.Router) {
	add := func(method, pattern string, h httpapi.Handler, body httpapi.BodyKind) {
		r.Handle(httpapi.Route{Method: method, Pattern: pattern, Handler: h, Access: httpapi.AccessOwner, About: httpapi.AboutNone, Body: body})
	}
	add(http.MethodGet, "/upkeep/tokens", d.list, httpapi.BodyNone)
	add(http.MethodPost, "/upkeep/tokens", d.add, httpapi.BodyJSON)
	add(http.MethodDelete, "/upkeep/tokens", d.off, httpapi.BodyNone)
	add(http.MethodDelete, "/upkeep/tokens/{name}", d.remove, httpapi.BodyNone)
}

// tokenObject is a token in an answer; it has the secret only once, when it is
// added.
type tokenObject struct {
	Name     string   `json:"name"`
	Scope    string   `json:"scope"`
	Roots    []string `json:"roots"`
	Created  *string  `json:"created"` // null: it is in the settings
	Expires  *string  `json:"expires"` // null: never
	Expired  bool     `json:"expired"`
	Settings bool     `json:"settings"`
	Token    string   `json:"token,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

func tokenOf(t *access.Token) tokenObject {
	stamp := func(at time.Time) *string {
		if at.IsZero() {
			return nil
		}
		return wire.Text(wire.Stamp(at))
	}
	o := tokenObject{Name: t.Name, Scope: t.Scope.String(), Roots: t.Roots, Created: stamp(t.Created), Expires: stamp(t.Expires),
		Expired: t.Expired(time.Now()), Settings: t.Fixed()}
	if o.Roots == nil {
		o.Roots = []string{}
	}
	return o
}

func (d *Tokens) list(c *gin.Context) error {
	all := d.Book.List()
	out := make([]tokenObject, len(all))
	for i := range all {
		out[i] = tokenOf(&all[i])
	}
	c.Header("Cache-Control", "no-store")
	httpapi.JSON(c, http.StatusOK, map[string]any{"on": d.Book.On(), "tokens": out})
	return nil
}

type addToken struct {
	Name    string   `json:"name"`
	Scope   string   `json:"scope"`
	Roots   []string `json:"roots"`
	Expires *string  `json:"expires"`
}

func wrong(field, format string, args ...any) error {
	return errs.New(errs.Invalid, "invalid_field", format, args...).With("field", field)
}

func (d *Tokens) add(c *gin.Context) error {
	var body addToken
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	now := time.Now()
	t := access.Token{Name: body.Name}
	var ok bool
	if t.Scope, ok = access.ParseScope(body.Scope); !ok {
		return wrong("scope", "scope must be read, write or exec.")
	}
	if body.Expires != nil {
		life, err := time.ParseDuration(*body.Expires)
		if err != nil || life <= 0 {
			return wrong("expires", "expires must be a duration above 0, such as 720h.")
		}
		t.Expires = now.Add(life)
	}
	var warnings []string
	for _, dir := range body.Roots {
		if !filepath.IsAbs(dir) || strings.IndexByte(dir, 0) >= 0 {
			return wrong("roots", "roots must be absolute paths.")
		}
		root := access.Canonical(dir)
		if !isFolder(root) {
			warnings = append(warnings, "the directory "+root+" does not exist yet")
		}
		t.Roots = append(t.Roots, root)
	}
	t, secret, err := d.Book.Add(t, now)
	if err != nil {
		return err
	}
	audit.Allowed(c.Request.Context(), audit.Tokens, "", slog.String("added", t.Name), slog.String("scope", t.Scope.String()), slog.Any("roots", t.Roots))
	o := tokenOf(&t)
	o.Token, o.Warnings = secret, warnings
	c.Header("Cache-Control", "no-store")
	httpapi.JSON(c, http.StatusCreated, o)
	return nil
}

func (d *Tokens) remove(c *gin.Context) error {
	name, err := httpapi.Param(c, "name")
	if err != nil {
		return err
	}
	if err := d.Book.Remove(name); err != nil {
		return err
	}
	audit.Allowed(c.Request.Context(), audit.Tokens, "", slog.String("removed", name))
	httpapi.JSON(c, http.StatusOK, map[string]any{"name": name, "left": len(d.Book.List())})
	return nil
}

func (d *Tokens) off(c *gin.Context) error {
	if d.Needed {
		return errs.New(errs.Conflict, "tokens_needed", "The server listens on an address that others can reach: it needs tokens.")
	}
	if err := d.Book.Off(); err != nil {
		return err
	}
	audit.Allowed(c.Request.Context(), audit.Tokens, "", slog.Bool("off", true))
	httpapi.JSON(c, http.StatusOK, map[string]any{"on": d.Book.On()})
	return nil
}
