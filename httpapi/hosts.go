package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"umbra/internal/errs"
)

// checkHost lets in only who called us by a loopback name or a listed one: a
// page whose name was rebound to our address names itself.
func (s *Server) checkHost(r *http.Request) error {
	name, _ := splitHost(r.Host)
	if loopbackName(name) || slices.Contains(s.opts.Hosts, name) {
		return nil
	}
	return errs.New(errs.Forbidden, "host_not_allowed", "The Host header names another server.")
}

// ownOrigin reports whether a page's origin is the server itself: a listed name,
// or the loopback at the server's own port.
func (s *Server) ownOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	name, port := splitHost(u.Host)
	if slices.Contains(s.opts.Hosts, name) {
		return true
	}
	scheme, standard := "http", "80"
	if r.TLS != nil {
		scheme, standard = "https", "443"
	}
	if u.Scheme != scheme || !loopbackName(name) {
		return false
	}
	if port == "" {
		port = standard
	}
	if here, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return port == strconv.Itoa(here.Port)
	}
	// On a unix socket no port is ours; only the very name that was called is.
	return strings.EqualFold(u.Host, r.Host)
}

func splitHost(hostport string) (name, port string) {
	name = hostport
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		name, port = h, p
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.TrimSuffix(strings.ToLower(name), "."), port
}

// loopbackName reports whether a host names this machine's loopback. Names that
// a resolver would have to be asked for do not count.
func loopbackName(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Unmap().IsLoopback()
}
