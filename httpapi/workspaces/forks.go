package workspaces

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/fork"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// maxLife bounds how long after it was made a fork may expire.
const maxLife = 10 * 365 * 24 * time.Hour

// lifetime reads a duration: a number of seconds, or a text such as "36h"; 0 for
// none.
func lifetime(raw json.RawMessage) (time.Duration, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, nil
	}
	var text string
	var seconds float64
	var d time.Duration
	switch {
	case json.Unmarshal(raw, &seconds) == nil && seconds <= maxLife.Seconds():
		d = time.Duration(seconds * float64(time.Second))
	case json.Unmarshal(raw, &text) == nil:
		d, _ = time.ParseDuration(text)
	}
	if d <= 0 || d > maxLife {
		return 0, errs.New(errs.Invalid, "invalid_expires_in", "expires_in must be a number of seconds, or a text such as \"36h\".").With("field", "expires_in")
	}
	return d, nil
}

func (d *Dialect) registerForks(r *httpapi.Router) {
	one := httpapi.AboutWorkspace("ws", "")
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/workspaces/{ws}/forks", Handler: d.listForks, About: one})
	r.Handle(httpapi.Route{Method: "POST", Pattern: "/workspaces/{ws}/forks", Handler: d.makeForks, About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyOptionalJSON, Changes: true})
	// A dry run is reading; the handlers ask for more.
	change := httpapi.Route{About: d.aboutMerge, Method: "POST", Body: httpapi.BodyOptionalJSON, Changes: true}
	change.Pattern, change.Handler = "/workspaces/{ws}/merge", d.mergeFork
	r.Handle(change)
	change.Pattern, change.Handler = "/workspaces/{ws}/rebase", d.rebaseFork
	r.Handle(change)
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/workspaces/{ws}/compare?with&path&context&summary", Handler: d.compare, About: d.aboutCompare})
}

// makeForks makes forks of a workspace.
func (d *Dialect) makeForks(c *gin.Context) error {
	if _, err := d.id(c); err != nil { // before what the caller may do
		return err
	}
	var body struct {
		Name      string          `json:"name"`
		Kind      string          `json:"kind"`
		At        string          `json:"at"`
		Path      string          `json:"path"`
		Ignored   string          `json:"ignored"`
		Count     *int            `json:"count"`
		ExpiresIn json.RawMessage `json:"expires_in"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	f := fork.Make{Name: body.Name, Kind: body.Kind, At: body.At, Path: body.Path, Ignored: body.Ignored, Allow: httpapi.CallerOf(c).MayOpen}
	if body.Count != nil {
		if f.Count = *body.Count; f.Count == 0 {
			f.Count = -1 // none is no default
		}
	}
	var err error
	if f.ExpiresIn, err = lifetime(body.ExpiresIn); err != nil {
		return err
	}
	return d.using(c, func(w *workspace.Workspace) error {
		made, err := d.forks.Make(c.Request.Context(), w, f)
		if err != nil {
			return err
		}
		return d.respondForks(c, http.StatusCreated, made)
	})
}

// listForks lists the forks of a workspace, the oldest first.
func (d *Dialect) listForks(c *gin.Context) error {
	rec, err := d.id(c)
	if err != nil {
		return err
	}
	return d.respondForks(c, http.StatusOK, d.workspaces.Forks(rec.ID))
}

func (d *Dialect) respondForks(c *gin.Context, status int, list []workspaces.Record) error {
	out := []object{}
	for _, rec := range list {
		if !httpapi.CallerOf(c).Sees(rec.Place()) {
			continue
		}
		o, err := d.describeRecord(c.Request.Context(), rec)
		if errs.Is(err, errs.NotFound) {
			continue // forgotten meanwhile
		}
		if err != nil {
			return err
		}
		out = append(out, o)
	}
	httpapi.JSON(c, status, map[string]any{"forks": out})
	return nil
}

// describeRecord describes a workspace, without opening it if it is unloaded.
func (d *Dialect) describeRecord(ctx context.Context, rec workspaces.Record) (object, error) {
	if rest, state, ok := d.workspaces.Resting(rec.ID); ok {
		return d.resting(rec, rest, state)
	}
	w, err := d.workspaces.Inspect(ctx, rec.ID)
	if err != nil {
		return object{}, err
	}
	defer w.Release()
	return d.describe(w)
}

// forkObject is what a workspace's description says of a fork.
type forkObject struct {
	Of      string  `json:"fork_of,omitempty"`
	At      string  `json:"fork_at,omitempty"`
	Name    string  `json:"name,omitempty"`
	Expires *string `json:"expires_at,omitempty"`
	Judged  *judged `json:"judged,omitempty"`
}

// judged is how a race ended for a fork.
type judged struct {
	Passed  *bool    `json:"passed"`
	Score   *float64 `json:"score"`
	Exit    *int     `json:"exit_code"`
	Seconds float64  `json:"seconds"`
	Command string   `json:"command"`
	At      string   `json:"at"`
}

// maxJudge bounds the judge's command in a judgment, in bytes.
const maxJudge = 4096

func (j *judged) judgment() (out workspaces.Judgment, err error) {
	if j.Passed == nil || j.Seconds < 0 || len(j.Command) > maxJudge || !utf8.ValidString(j.Command) || j.At != "" {
		return out, errs.New(errs.Unprocessable, "validation_failed",
			"judged must have passed, true or false, and may have score, exit_code, seconds from 0 and a command of at most %d bytes.", maxJudge).With("field", "judged")
	}
	return workspaces.Judgment{Passed: *j.Passed, Score: j.Score, Exit: j.Exit, Seconds: j.Seconds, Command: j.Command}, nil
}

func forkOf(rec workspaces.Record) forkObject {
	f := rec.Fork
	if f == nil {
		return forkObject{}
	}
	o := forkObject{Of: f.Of, At: f.At, Name: f.Name}
	if !f.Expires.IsZero() {
		o.Expires = wire.Text(wire.Stamp(f.Expires))
	}
	if j := f.Judged; j != nil {
		o.Judged = &judged{Passed: &j.Passed, Score: j.Score, Exit: j.Exit, Seconds: j.Seconds, Command: j.Command, At: wire.Stamp(j.At)}
	}
	return o
}
