package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// Scope says what a token may do.
type Scope uint8

// The scopes. A caller without a token, where there are none, has ScopeWrite.
const (
	ScopeRead Scope = iota
	ScopeWrite
)

// Token is one that the server knows: never the secret, only its hash.
type Token struct {
	Name    string
	SHA256  [sha256.Size]byte
	Scope   Scope
	Roots   []string  // canonical folders; none: sees everything, opens nothing new
	Expires time.Time // zero: never
}

// Caller is who sent a request.
type Caller struct {
	Token string // the token's name, empty where tokens are off
	Scope Scope
	Roots []string
	Owner bool // one of the owner's own verbs, where tokens are on

	policy *policy
}

// policy is what the configuration says about folders.
type policy struct {
	roots  []string // workspaces.roots, canonical
	hosted bool
	tokens bool
}

// Sees reports whether the caller may know of the workspace with this canonical
// root; "" stands for one without a folder. What it does not see is answered as
// if it were not there.
func (k Caller) Sees(root string) bool {
	return len(k.Roots) == 0 || root != "" && under(root, k.Roots)
}

// MayOpen tells whether the caller may make the folder with this canonical path
// a workspace: nil, or a 403.
func (k Caller) MayOpen(root string) error {
	denied := errs.New(errs.Forbidden, "workspace_not_allowed", "The caller may not open this folder.")
	if p := k.policy; p != nil {
		if p.tokens && !under(root, k.Roots) {
			return denied
		}
		if len(p.roots) > 0 && !under(root, p.roots) || len(p.roots) == 0 && p.hosted {
			return denied
		}
	}
	return nil
}

// under reports whether a canonical path is one of the folders or lies in one.
func under(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		rel, err := filepath.Rel(f, path)
		return err == nil && (rel == "." || filepath.IsLocal(rel))
	})
}

// authenticate finds who calls where tokens are on. Every token is compared, in
// constant time.
func (s *Server) authenticate(c *gin.Context, f *facts) bool {
	f.caller = Caller{Scope: ScopeWrite, policy: &s.policy}
	if len(s.opts.Tokens) == 0 || f.route != nil && f.route.Access == AccessPublic {
		return true
	}
	secret, ok := bearer(c.Request.Header.Values("Authorization"))
	challenge := `Bearer realm="umbra"`
	if f.route != nil && f.route.Basic {
		challenge = `Basic realm="umbra"`
		if !ok {
			_, secret, ok = c.Request.BasicAuth()
		}
	}
	sum := sha256.Sum256([]byte(secret))
	if s.opts.Owner != ([sha256.Size]byte{}) && ok && subtle.ConstantTimeCompare(sum[:], s.opts.Owner[:]) == 1 {
		f.caller = Caller{Scope: ScopeWrite, Owner: true} // no policy: the owner made it
		return true
	}
	var found *Token
	for i := range s.opts.Tokens {
		t := &s.opts.Tokens[i]
		if subtle.ConstantTimeCompare(sum[:], t.SHA256[:]) == 1 {
			found = t
		}
	}
	if !ok || found == nil || !found.Expires.IsZero() && !time.Now().Before(found.Expires) {
		s.deny(c, f, &Problem{Status: http.StatusUnauthorized, Kind: errs.Forbidden, Code: "unauthorized", Detail: "A valid bearer token is needed.",
			Header: http.Header{"Www-Authenticate": {challenge}}})
		return false
	}
	f.caller = Caller{Token: found.Name, Scope: found.Scope, Roots: found.Roots, policy: &s.policy}
	if f.route != nil && f.route.Access == AccessWrite && found.Scope != ScopeWrite {
		s.deny(c, f, &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "forbidden", Detail: "The token may only read."})
		return false
	}
	if f.route != nil && f.route.Access == AccessOwner {
		s.deny(c, f, &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "owner_only",
			Detail: "Only the owner's own verbs may do this, on the server's machine."})
		return false
	}
	return true
}

// bearer takes the token out of the one Authorization header (RFC 6750).
func bearer(headers []string) (string, bool) {
	if len(headers) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// NeedWrite refuses a caller whose token may only read, on a route where what
// is asked for decides: a dry run is reading.
func NeedWrite(c *gin.Context) error {
	if CallerOf(c).Scope == ScopeWrite {
		return nil
	}
	return errs.New(errs.Forbidden, "forbidden", "The token may only read.")
}
