package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/telemetry"
)

// Handler answers one request, or returns the error that the router renders in
// its shape. Once something was written, a returned error is only logged.
type Handler func(c *gin.Context) error

// Access says what a token must allow for a route.
type Access uint8

// What a route asks of the caller. Without tokens everybody who gets in may do
// everything.
const (
	AccessRead   Access = iota // any token
	AccessWrite                // a token of scope write
	AccessPublic               // no token
	AccessOwner                // the owner's own verbs alone; without tokens all processes of the owner's user
)

// BodyKind says what a route does with the request's body.
type BodyKind uint8

// What a body may be. A JSON body needs a JSON content type (415).
const (
	BodyNone         BodyKind = iota // never read
	BodyJSON                         // read by DecodeJSON
	BodyOptionalJSON                 // the same, may be empty
	BodyRaw                          // bytes of any type
)

// Route is one method on one pattern.
//
// A pattern is literal segments and parameters: "{id}" matches one segment,
// "{path...}" one or more; literal segments may follow the latter. "?path&limit" at the
// end names the query parameters that the route takes; any other is refused.
type Route struct {
	Method, Pattern string
	Handler         Handler
	Access          Access
	Body            BodyKind
	MaxBody         int64 // bytes; 0 means Options.MaxJSON
	Changes         bool  // takes Idempotency-Key and the tagging headers
	Stream          bool  // long-lived: ended at once when the server stops
	Basic           bool  // the token may come as the password of Basic authentication (git)
	AnyHost         bool  // answered whatever Host and Origin say (probes)
	AnyQuery        bool  // query parameters that the pattern does not name are ignored
	Internal        bool  // for other nodes of the cluster alone; does not exist for clients
	// About says which workspace a request is about: in a cluster its owner answers.
	About About
	// Follow says whether a node that does not own the workspace can answer as well, from
	// the log that nodes share: history alone is read.
	Follow Follow
	// Authorize refuses what the caller may not see before an idempotent answer
	// is given again. It lets pass what it does not know.
	Authorize func(c *gin.Context) error

	shape  Shape
	query  []string // names of the query parameters
	prefix string   // gin's path, up to and with the catch-all
	params []string // names of the single-segment parameters
	rest   string   // name of the "{x...}" parameter
	suffix string   // what follows it: "/diff"
	meter  *telemetry.Route
}

// Follow says when a route is answered from the log that nodes share.
type Follow int

// The answers: never; where the request says how new the answer has to be, or the owner
// is gone; always.
const (
	FollowNever Follow = iota
	FollowReads
	FollowClones
)

// Dialect is one HTTP surface.
type Dialect interface {
	// Register adds the dialect's routes.
	Register(r *Router)
	// OpenAPI is a YAML fragment with paths and components of these routes.
	OpenAPI() []byte
}

// Router takes routes until the server starts. It is not safe for concurrent use.
type Router struct {
	shape Shape
	t     *table
}

// table holds all routes, by gin's own path and method.
type table struct {
	engine *gin.Engine
	meter  *telemetry.Requests
	routes map[string]map[string][]*Route // gin path → method → routes, longest suffix first
	all    []*Route
}

func newTable(engine *gin.Engine, meter *telemetry.Requests) *table {
	return &table{engine: engine, meter: meter, routes: map[string]map[string][]*Route{}}
}

// With gives the same router with another error shape.
func (r *Router) With(s Shape) *Router { return &Router{shape: s, t: r.t} }

// Handle adds a route. A pattern that is malformed or occurs twice is a
// programming error and panics at start.
func (r *Router) Handle(rt Route) {
	rt.shape = r.shape
	if err := rt.compile(); err != nil {
		panic(fmt.Sprintf("httpapi: route %s %s: %v", rt.Method, rt.Pattern, err))
	}
	r.t.add(&rt)
}

func (rt *Route) compile() error {
	if !strings.HasPrefix(rt.Pattern, "/") {
		return fmt.Errorf("pattern has no leading slash")
	}
	pattern, query, named := strings.Cut(rt.Pattern, "?")
	if rt.Pattern = pattern; named {
		rt.query = strings.Split(query, "&")
	}
	var b strings.Builder
	for i, seg := range strings.Split(rt.Pattern[1:], "/") {
		name, isParam := strings.CutPrefix(seg, "{")
		name, closed := strings.CutSuffix(name, "}")
		if isParam != closed {
			return fmt.Errorf("unbalanced braces in %q", seg)
		}
		base, isRest := strings.CutSuffix(name, "...")
		switch {
		case rt.rest != "" && isParam:
			return fmt.Errorf("a parameter follows {%s...}", rt.rest)
		case rt.rest != "":
			rt.suffix += "/" + seg
		case isParam && isRest:
			rt.rest = base
			b.WriteString("/*rest")
		case isParam:
			// gin requires one name for all parameters at a place: ours are by position.
			fmt.Fprintf(&b, "/:p%d", i)
			rt.params = append(rt.params, name)
		default:
			b.WriteString("/" + seg)
		}
	}
	rt.prefix = b.String()
	return nil
}

func (t *table) add(rt *Route) {
	methods := t.routes[rt.prefix]
	if methods == nil {
		methods = map[string][]*Route{}
		t.routes[rt.prefix] = methods
	}
	for _, other := range methods[rt.Method] {
		if other.suffix == rt.suffix {
			panic("httpapi: route occurs twice: " + rt.Method + " " + rt.Pattern)
		}
	}
	names := []string{rt.Method}
	if rt.Method == http.MethodGet {
		names = append(names, http.MethodHead)
	}
	for _, m := range names {
		if methods[m] == nil {
			t.engine.Handle(m, rt.prefix, t.dispatch)
		}
		methods[m] = append(methods[m], rt)
		slices.SortStableFunc(methods[m], func(a, b *Route) int { return len(b.suffix) - len(a.suffix) })
	}
	rt.meter = t.meter.Route(rt.Method, rt.Pattern)
	t.all = append(t.all, rt)
}

// find gives the route of a request that gin has matched to a path, nil where
// none fits.
func (t *table) find(c *gin.Context, method string) *Route {
	if slices.ContainsFunc(c.Params, func(p gin.Param) bool { return p.Value == "" }) {
		return nil
	}
	for _, rt := range t.routes[c.FullPath()][method] {
		if rt.rest == "" {
			return rt
		}
		rest, ok := strings.CutSuffix(c.Param("rest"), rt.suffix)
		if ok && len(rest) > 1 {
			return rt
		}
	}
	return nil
}

// dispatch runs the handler of the route that the first middleware found.
func (t *table) dispatch(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil {
		t.noRoute(c)
		return
	}
	if err := f.route.Handler(c); err != nil {
		Fail(c, err)
	}
}

// allowed lists the methods that the path of a request knows.
func (t *table) allowed(c *gin.Context) []string {
	var names []string
	for prefix := range t.routes {
		params, ok := matchPrefix(prefix, c.Request.URL.EscapedPath())
		if !ok {
			continue
		}
		for m, routes := range t.routes[prefix] {
			for _, rt := range routes {
				if rt.Internal {
					continue
				}
				rest, fits := strings.CutSuffix(params, rt.suffix)
				if rt.rest == "" || fits && len(rest) > 1 {
					names = append(names, m)
					break
				}
			}
		}
	}
	if len(names) > 0 {
		names = append(names, http.MethodOptions)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// matchPrefix reports whether an escaped path fits gin's path, and gives what
// its catch-all takes.
func matchPrefix(prefix, escaped string) (rest string, ok bool) {
	for prefix != "" {
		if strings.HasPrefix(prefix, "/*") {
			return escaped, strings.HasPrefix(escaped, "/")
		}
		if prefix[0] != '/' || escaped == "" || escaped[0] != '/' {
			return "", false
		}
		var want, got string
		want, prefix = cutSegment(prefix)
		got, escaped = cutSegment(escaped)
		if want != got && (!strings.HasPrefix(want, ":") || got == "") {
			return "", false
		}
	}
	return "", escaped == ""
}

// cutSegment takes "/a" off "/a/b".
func cutSegment(p string) (segment, rest string) {
	p = p[1:]
	if i := strings.IndexByte(p, '/'); i >= 0 {
		return p[:i], p[i:]
	}
	return p, ""
}

// noRoute answers what no route takes: 404, 405 with Allow, or OPTIONS.
func (t *table) noRoute(c *gin.Context) {
	allow := t.allowed(c)
	if len(allow) == 0 {
		Fail(c, &Problem{Status: http.StatusNotFound, Code: "not_found", Detail: "The route does not exist; GET /docs lists all routes."})
		return
	}
	value := strings.Join(allow, ", ")
	if c.Request.Method == http.MethodOptions {
		c.Header("Allow", value)
		c.Status(http.StatusNoContent)
		c.Writer.WriteHeaderNow()
		return
	}
	Fail(c, &Problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Detail: "This route does not take " + printable(c.Request.Method, 32) + "; it takes " + value + ".", Header: http.Header{"Allow": {value}}})
}

// Param gives a path parameter of the route's pattern, percent-decoded once
// from the path as it was sent: any byte may come out of it. A malformed escape
// is a 400.
func Param(c *gin.Context, name string) (string, error) {
	rt := factsOf(c).route
	if rt == nil {
		return "", errs.New(errs.Internal, "internal_error", "The route has no parameters.")
	}
	var raw string
	if name == rt.rest && name != "" {
		raw = strings.TrimPrefix(strings.TrimSuffix(c.Param("rest"), rt.suffix), "/")
	} else if i := slices.Index(rt.params, name); i >= 0 {
		raw = c.Params[i].Value
	}
	s, err := url.PathUnescape(raw)
	if err != nil {
		return "", errs.New(errs.BadPath, "bad_path", "The path in the URL is not percent-encoded correctly.")
	}
	return s, nil
}
