package engine

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// parseURL reads the URL of a setting. Causes that net/url and pgx name are left out of
// the sentences: they may quote a part of the password.
func parseURL(raw, setting string) (*pgx.ConnConfig, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return nil, Refuse("cluster_url_invalid", nil, "%s does not begin with postgres://.", setting)
	}
	if authority, _, _ := strings.Cut(rest, "/"); authority == "" {
		return nil, Refuse("cluster_url_invalid", nil, "%s names no host.", setting)
	}
	cfg, err := pgx.ParseConfig(raw)
	if err != nil {
		return nil, Refuse("cluster_url_invalid", nil, "%s is not of the form postgres://USER@HOST:PORT,HOST:PORT/DATABASE?PARAMETER=VALUE.", setting)
	}
	if cfg.Database == "" {
		return nil, Refuse("cluster_url_invalid", nil, "%s names no database.", setting)
	}
	return cfg, nil
}

// Hosts lists the servers that the URL names, for messages.
func (e *Engine) Hosts() string {
	var list []string
	add := func(host string, port uint16) {
		at := net.JoinHostPort(host, fmt.Sprint(port))
		if strings.HasPrefix(host, "/") {
			at = host
		}
		if len(list) == 0 || list[len(list)-1] != at { // TLS and plain are two attempts
			list = append(list, at)
		}
	}
	add(e.cfg.Host, e.cfg.Port)
	for _, f := range e.cfg.Fallbacks {
		add(f.Host, f.Port)
	}
	return strings.Join(list, ", ")
}

// Cause returns what a failed connection may say to the owner: what the server
// or the system reported, without the connection's settings.
func Cause(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Message
	}
	for _, known := range []error{ErrStandby, ErrOlder, ErrReadOnly} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return oneLine(op.Err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return oneLine(dns)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return oneLine(err)
}
