package httpapi

import (
	"net/http"
	"os"

	"umbra/internal/errs"
	"umbra/internal/peer"
)

// allowPeer lets in the user that runs the server, and root.
func (s *Server) allowPeer(r *http.Request) error {
	p := peer.Of(r.Context())
	if !s.checkPeer || p == nil || p.Remote() || s.tokens.On() {
		return nil
	}
	uid, err := p.Owner()
	if err == nil && (uid == 0 || uid == os.Geteuid()) {
		return nil
	}
	if peer.OutOfDescriptors(err) {
		return errs.Wrap(err, "")
	}
	return &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "other_user", Err: err,
		Detail: "Only processes of the user that runs the server may call it."}
}

// ownUser reports whether a request is known to come from the user that runs the
// server, or root: allowPeer has let it in. One that came by no connection is a
// test's.
func (s *Server) ownUser(r *http.Request) bool {
	p := peer.Of(r.Context())
	return p == nil || s.checkPeer && !p.Remote()
}
