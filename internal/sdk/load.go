package sdk

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// API is one document, as the settings name it.
type API struct {
	Name    string
	Spec    string // path of the document, JSON or YAML
	BaseURL string // empty: the document's first server
	Headers map[string]string
}

// Options of Load.
type Options struct {
	APIs []API
	// MaxBytes bounds an answer, MaxCalls a script's calls; Timeout one call.
	MaxBytes int64
	MaxCalls int
	Timeout  time.Duration
	// Env gives the values of variables in headers; os.LookupEnv.
	Env func(name string) (string, bool)
}

// SDK is the functions of all documents. Its methods may be called
// concurrently.
type SDK struct {
	o            Options
	client       *http.Client
	transport    *http.Transport
	functions    []function
	declarations string
}

// function is one operation at one path in the table sdk.
type function struct {
	path []string // behind "sdk"
	op   *operation
}

// api is a document that was read.
type api struct {
	name    string
	base    *url.URL
	headers http.Header
	secrets []string // values of headers, longest first
	ops     []*operation
}

// Load reads the documents. An error names the setting or document it is about.
func Load(o Options) (*SDK, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	s := &SDK{o: o}
	s.transport = &http.Transport{
		Proxy: nil, MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 1 << 20, ForceAttemptHTTP2: true,
	}
	s.client = &http.Client{Transport: s.transport, CheckRedirect: sameOrigin}
	var apis []*api
	for i, a := range o.APIs {
		read, err := s.read(a)
		if err != nil {
			return nil, fmt.Errorf("scripts.apis, item %d (%s): %w", i+1, a.Spec, err)
		}
		if slices.ContainsFunc(apis, func(other *api) bool { return other.name == read.name }) {
			return nil, fmt.Errorf("scripts.apis, item %d (%s): the name %q is taken", i+1, a.Spec, a.Name)
		}
		apis = append(apis, read)
	}
	s.place(apis)
	s.declarations = declare(s.functions)
	return s, nil
}

// Close gives idle connections up.
func (s *SDK) Close() { s.transport.CloseIdleConnections() }

// place gives each operation its paths: sdk.<operation>, and with several
// documents also sdk.<name>.<operation>, which alone is left where a name means
// two things.
func (s *SDK) place(apis []*api) {
	taken := map[string]int{}
	for _, a := range apis {
		if len(apis) > 1 {
			taken[a.name]++
		}
		for _, op := range a.ops {
			taken[op.name]++
		}
	}
	for _, a := range apis {
		for _, op := range a.ops {
			if taken[op.name] == 1 {
				s.functions = append(s.functions, function{path: []string{op.name}, op: op})
			}
			if len(apis) > 1 {
				s.functions = append(s.functions, function{path: []string{a.name, op.name}, op: op})
			}
		}
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s *SDK) read(a API) (*api, error) {
	if !identifier.MatchString(a.Name) {
		return nil, fmt.Errorf("name %q is not an identifier", a.Name)
	}
	doc, err := document(a.Spec)
	if err != nil {
		return nil, err
	}
	out := &api{name: a.Name, headers: http.Header{}}
	if out.base, err = baseURL(a.BaseURL, doc); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		value, err := expand(a.Headers[name], s.o.Env)
		if err != nil {
			return nil, fmt.Errorf("headers, %s: %w", name, err)
		}
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("headers, %s: no valid header", name)
		}
		out.headers.Set(name, value)
		out.secrets = append(out.secrets, secretsOf(value)...)
	}
	slices.SortFunc(out.secrets, func(a, b string) int { return len(b) - len(a) })
	return out, out.operations(doc)
}

var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// secretsOf returns the parts of a header's value that are secret: all of it, and
// what follows a scheme such as Bearer.
func secretsOf(value string) []string {
	out := []string{value}
	if _, token, ok := strings.Cut(value, " "); ok {
		out = append(out, token)
	}
	return slices.DeleteFunc(out, func(s string) bool { return len(s) < 4 })
}

func baseURL(given string, doc *openAPI) (*url.URL, error) {
	text := given
	if text == "" {
		if len(doc.servers) == 0 {
			return nil, errors.New("the document names no server: set base_url")
		}
		text = doc.servers[0]
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address of the API must be an http or https URL without user, query and fragment: set base_url")
	}
	return u, nil
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func expand(text string, env func(string) (string, bool)) (string, error) {
	var missing error
	out := variable.ReplaceAllStringFunc(text, func(m string) string {
		value, ok := env(m[2 : len(m)-1])
		if !ok {
			missing = fmt.Errorf("the environment has no %s", m[2:len(m)-1])
		}
		return value
	})
	return out, missing
}

// operations collects what the document offers, by name.
func (a *api) operations(doc *openAPI) error {
	byName := map[string]*operation{}
	for _, o := range doc.operations {
		if o.id == "" {
			o.id = strings.ToLower(o.method) + " " + o.path
		}
		op := &operation{api: a, name: snake(o.id), method: o.method, path: o.path, summary: o.summary}
		if err := op.describe(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.method, o.path, err)
		}
		if other := byName[op.name]; other != nil {
			return fmt.Errorf("%s %s and %s %s have the same name %s", other.method, other.path, o.method, o.path, op.name)
		}
		byName[op.name] = op
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		a.ops = append(a.ops, byName[name])
	}
	return nil
}

// snake makes a Luau name of an operation's id: listUsers, list-users and
// ListUsers are list_users; getHTTPStatus is get_http_status.
func snake(id string) string {
	var b strings.Builder
	runes := []rune(id)
	for i, r := range runes {
		switch {
		case r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			if b.Len() > 0 && !strings.HasSuffix(b.String(), "_") {
				b.WriteByte('_')
			}
			continue
		case unicode.IsUpper(r) && i > 0 && b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			before := runes[i-1]
			if unicode.IsLower(before) || unicode.IsDigit(before) || unicode.IsUpper(before) && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	name := strings.TrimRight(b.String(), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}
