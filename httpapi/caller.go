package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/access"
	"umbra/internal/errs"
)

// Scope says what a token may do.
type Scope = access.Scope

// Token is one that the server knows: never the secret, only its hash.
type Token = access.Token

// The scopes. A caller without a token, where there are none, has ScopeWrite.
const (
	ScopeRead  = access.Read
	ScopeWrite = access.Write
	ScopeExec  = access.Exec
)

// Caller is who sent a request.
type Caller struct {
	Token string // the token's name, empty where tokens are off
	Scope Scope
	Roots []string
	Owner bool // one of the owner's own verbs, where tokens are on

	policy *policy
	denied *denied
}

// policy is what the configuration says about folders.
type policy struct {
	roots  []string // workspaces.roots, canonical
	own    []string // the code workspace and the output directory, canonical
	hosted bool
}

// denied is what a request's caller was kept from, for the audit log.
type denied struct {
	reason atomic.Pointer[string] // of a refusal
	hidden atomic.Bool            // something was left out because it is outside of the roots
}

// Sees reports whether the caller may know of the workspace with this canonical
// root; "" is one without a directory. Answers treat what it does not see as
// nonexistent. A token with roots sees what is below them, and never the server's
// own workspaces.
func (k Caller) Sees(root string) bool {
	sees := len(k.Roots) == 0 || root != "" && under(root, k.Roots) && (k.policy == nil || !under(root, k.policy.own))
	if !sees && k.denied != nil {
		k.denied.hidden.Store(true)
	}
	return sees
}

// MayOpen reports whether the caller may make the directory with this canonical
// path a workspace: nil, or a 403.
func (k Caller) MayOpen(root string) error {
	const code = "workspace_not_allowed"
	refused := false
	if p := k.policy; p != nil {
		refused = k.Token != "" && !under(root, k.Roots) || k.Token != "" && under(root, p.own) ||
			len(p.roots) > 0 && !under(root, p.roots) || len(p.roots) == 0 && p.hosted
	}
	if !refused {
		return nil
	}
	k.Refused(code)
	return errs.New(errs.Forbidden, code, "The caller may not open this directory.")
}

// Refused records for the audit log that the caller was refused something, where
// no error of the frame shows it.
func (k Caller) Refused(reason string) {
	if k.denied != nil {
		k.denied.reason.CompareAndSwap(nil, &reason)
	}
}

// under reports whether a canonical path is one of the folders or lies in one.
func under(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		rel, err := filepath.Rel(f, path)
		return err == nil && (rel == "." || filepath.IsLocal(rel))
	})
}

// authenticate finds who calls where tokens are on.
func (s *Server) authenticate(c *gin.Context, f *facts) bool {
	f.caller = Caller{Scope: ScopeWrite, policy: &s.policy, denied: &f.denied}
	if f.route != nil && f.route.Access == AccessPublic {
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
	refuse := func(name, reason string, p *Problem) bool {
		f.caller.Token = name
		s.deny(c, f, reason, p)
		return false
	}
	var sum access.Sum
	isOwner := false
	if ok {
		sum = sha256.Sum256([]byte(secret))
		isOwner = s.opts.Owner != (access.Sum{}) && subtle.ConstantTimeCompare(sum[:], s.opts.Owner[:]) == 1
	}
	if !s.tokens.On() {
		// Who gets in may do everything, but what drops history or opens doors: that
		// is for the owner, where it is not known that only the owner gets in.
		if f.route != nil && f.route.Access == AccessOwner && !isOwner && !s.ownUser(c.Request) {
			return refuse("", "owner_only", ownerOnly())
		}
		return true
	}
	if isOwner {
		f.caller = Caller{Scope: ScopeWrite, Owner: true} // no policy: the owner made it
		return true
	}
	var found *Token
	if ok {
		found = s.tokens.Find(sum)
	}
	if found == nil || found.Expired(time.Now()) {
		p := &Problem{Status: http.StatusUnauthorized, Kind: errs.Forbidden, Code: "unauthorized", Detail: "A valid bearer token is needed.",
			Header: http.Header{"Www-Authenticate": {challenge}}}
		switch {
		case found != nil:
			return refuse(found.Name, "token_expired", p)
		case ok:
			return refuse("", "token_unknown", p)
		}
		return refuse("", "token_missing", p)
	}
	f.token = found
	f.caller.Token, f.caller.Scope, f.caller.Roots = found.Name, found.Scope, found.Roots
	if f.route != nil && f.route.Access == AccessWrite && found.Scope < ScopeWrite {
		return refuse(found.Name, "read_only_token", &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "forbidden", Detail: "The token may only read."})
	}
	if f.route != nil && f.route.Access == AccessOwner {
		return refuse(found.Name, "owner_only", ownerOnly())
	}
	return true
}

func ownerOnly() *Problem {
	return &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "owner_only",
		Detail: "Only the owner's own verbs may do this, on the server's machine."}
}

// letIn reports whether the caller of a request that was let in would be now.
func (s *Server) letIn(f *facts) bool {
	switch {
	case f.caller.Owner, f.route != nil && f.route.Access == AccessPublic:
		return true
	case f.received != nil:
		return true // the node that let it in ends it
	case f.token == nil:
		return !s.tokens.On()
	}
	return s.tokens.Holds(f.token, time.Now())
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
	if CallerOf(c).Scope >= ScopeWrite {
		return nil
	}
	CallerOf(c).Refused("read_only_token")
	return errs.New(errs.Forbidden, "forbidden", "The token may only read.")
}

// NeedExec refuses a caller whose token may not run commands. Without tokens, and
// for the owner, the settings decide.
func NeedExec(c *gin.Context) error {
	k := CallerOf(c)
	if k.Token == "" || k.Scope >= ScopeExec {
		return nil
	}
	k.Refused("scope_insufficient")
	return errs.New(errs.Forbidden, "scope_insufficient", "Running commands needs a token with the scope exec.")
}
