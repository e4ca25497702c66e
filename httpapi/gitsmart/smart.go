package gitsmart

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/gitcmd"
	"umbra/internal/workspace"
)

// maxRequest bounds a client's request (the objects that it needs and has), as
// sent; maxInflated the same uncompressed.
const (
	maxRequest  = 16 << 20
	maxInflated = 64 << 20
)

// protocols is what a Git-Protocol header may look like (gitprotocol-v2(5)).
var protocols = regexp.MustCompile(`^version=[0-9]+(:[a-z0-9=_-]+)*$`)

// protocol returns the protocol in which a client asks; empty: version 0. In version 2 git
// sends any object that a repository reads, also those that what a fork is made of got
// since (git's upload-pack.c, parse_want); who may not know of that gets the older one.
func (d *Dialect) protocol(c *gin.Context, id string) string {
	p := c.GetHeader("Git-Protocol")
	if len(p) >= 100 || !protocols.MatchString(p) {
		return ""
	}
	for r, ok := d.workspaces.Record(id); ok && r.Fork != nil; r, ok = d.workspaces.Record(r.Fork.Of) {
		if !httpapi.CallerOf(c).Sees(r.Fork.Origin) {
			return ""
		}
	}
	return p
}

// advertise answers what a client asks first.
func (d *Dialect) advertise(c *gin.Context) error {
	service, _, err := httpapi.Query(c, "service")
	if err != nil {
		return err
	}
	switch service {
	case "git-upload-pack":
	case "git-receive-pack":
		return errPush()
	default:
		return errs.New(errs.Forbidden, "smart_http_only", "Only git's smart protocol is served here: use git 1.6.6 or newer.")
	}
	w, err := d.open(c)
	if err != nil {
		return err
	}
	defer w.Release()
	head(c, "application/x-git-upload-pack-advertisement")
	cmd, err := gitcmd.Command(c.Request.Context(), w.GitDir(), "upload-pack", "--stateless-rpc", "--advertise-refs", ".")
	if errors.Is(err, gitcmd.ErrMissing) {
		return plainAdvertise(c, w.GitDir())
	}
	if err != nil {
		return err
	}
	p := d.protocol(c, w.ID())
	if p != "" {
		cmd.Env = append(cmd.Env, "GIT_PROTOCOL="+p)
	}
	out := c.Writer
	if p == "" || p == "version=0" {
		// gitprotocol-http(5): the service's name, in a packet of its own.
		const line = "# service=git-upload-pack\n"
		fmt.Fprintf(out, "%04x%s0000", len(line)+4, line)
	}
	cmd.Stdout = out
	return started(c, gitcmd.Run(cmd))
}

// uploadPack makes the pack that a client requests.
func (d *Dialect) uploadPack(c *gin.Context) error {
	if t := c.ContentType(); t != "application/x-git-upload-pack-request" {
		return &httpapi.Problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Detail: "The request is not one of git's smart protocol."}
	}
	body, err := inflated(c)
	if err != nil {
		return err
	}
	w, err := d.open(c)
	if err != nil {
		return err
	}
	defer w.Release()
	done, err := d.turn(c.Request.Context())
	if err != nil {
		return err
	}
	defer done()
	asked := bufio.NewReader(body)
	// gitprotocol-v2(5): what only lists refs takes no history away.
	if head, _ := asked.Peek(len("0014command=ls-refs")); !bytes.HasSuffix(head, []byte("command=ls-refs")) {
		noteClone(c, w, "fetch")
	}
	err = d.servePack(c, w, asked)
	if i, ok := body.(*inflater); ok && i.err != nil && err != nil {
		return i.err // git was only given a part of the body
	}
	return err
}

// noteClone records the client in the log of clones.
func noteClone(c *gin.Context, w *workspace.Workspace, what string) {
	from, _, err := net.SplitHostPort(c.Request.RemoteAddr)
	if err != nil {
		from = c.Request.RemoteAddr
	}
	w.NoteClone(httpapi.CallerOf(c).Token, from, what)
}

func (d *Dialect) servePack(c *gin.Context, w *workspace.Workspace, body io.Reader) error {
	dir := w.GitDir()
	cmd, err := gitcmd.Command(c.Request.Context(), dir, "upload-pack", "--stateless-rpc", ".")
	if errors.Is(err, gitcmd.ErrMissing) {
		return plainPack(c, dir, body)
	}
	if err != nil {
		return err
	}
	if p := d.protocol(c, w.ID()); p != "" {
		cmd.Env = append(cmd.Env, "GIT_PROTOCOL="+p)
	}
	done, err := gitcmd.PinShallow(cmd, dir)
	if err != nil {
		return err
	}
	defer done()
	head(c, "application/x-git-upload-pack-result")
	cmd.Stdin, cmd.Stdout = body, flushing{c.Writer}
	err = gitcmd.Run(cmd)
	if _, ok := errors.AsType[*exec.ExitError](err); ok && !c.Writer.Written() && c.Request.Context().Err() == nil {
		// Git answers what it can read, also with an error: it has refused the request's form.
		return malformed(err)
	}
	return started(c, err)
}

func malformed(err error) error {
	return &errs.Error{Kind: errs.Invalid, Code: "malformed_body", Detail: "The body is not a request of git's smart protocol.", Err: err}
}

// flushing sends on at once what git says: progress, and the pack as it is
// made.
type flushing struct{ w gin.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	f.w.Flush()
	return n, err
}

func head(c *gin.Context, contentType string) {
	c.Header("Content-Type", contentType)
	c.Header("Cache-Control", "no-cache, max-age=0, must-revalidate")
	c.Header("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	c.Header("Pragma", "no-cache")
}

// started keeps an error from being rendered into an answer that has begun:
// git informs its client itself, and a client that hung up needs no answer.
func started(c *gin.Context, err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); (ok || c.Request.Context().Err() != nil) && c.Writer.Written() {
		_ = c.Error(err) // into the log
		return nil
	}
	return err
}

// inflated gives the body uncompressed, bounded.
func inflated(c *gin.Context) (io.Reader, error) {
	body := httpapi.BodyReader(c)
	switch c.GetHeader("Content-Encoding") {
	case "":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errBadGzip()
		}
		body = &inflater{z: z}
	default:
		return nil, &httpapi.Problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Detail: "The body's encoding is not known."}
	}
	return body, nil
}

func errBadGzip() error {
	return errs.New(errs.Invalid, "malformed_body", "The body is not valid gzip, which its Content-Encoding announces.")
}

// inflater uncompresses a body, at most maxInflated of it.
type inflater struct {
	z   *gzip.Reader
	n   int
	err error // that ended it
}

func (i *inflater) Read(p []byte) (int, error) {
	n, err := i.z.Read(p)
	if i.n += n; i.n > maxInflated {
		n, i.err = 0, errs.New(errs.TooLarge, "body_too_large", "The uncompressed body is larger than this route takes.").With("limit", maxInflated)
	} else if err != nil && err != io.EOF {
		i.err = errBadGzip()
	}
	if i.err != nil {
		return n, i.err
	}
	return n, err
}
