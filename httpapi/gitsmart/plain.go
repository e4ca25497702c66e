package gitsmart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gin-gonic/gin"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"umbra/internal/errs"
)

// Without git on the machine go-git makes the packs: protocol v0, whole clones
// and fetches of everything wanted; no shallow and no partial clones. It holds
// the pack's index in memory, so that a history that is too large is refused.

func plainSession(gitDir string) (transport.UploadPackSession, error) {
	if _, err := os.Stat(filepath.Join(gitDir, "objects", "info", "alternates")); err == nil {
		return nil, errs.New(errs.Unavailable, "git_missing", "A fork is cloned by git, which is not installed on the server's machine.")
	}
	// Package git of go-git would open it too, and bring SSH and its agent into the
	// program.
	store := filesystem.NewStorage(osfs.New(gitDir), cache.NewObjectLRUDefault())
	endpoint, err := transport.NewEndpoint("/")
	if err != nil {
		return nil, err
	}
	return server.NewServer(server.MapLoader{endpoint.String(): store}).NewUploadPackSession(endpoint, nil)
}

func plainAdvertise(c *gin.Context, gitDir string) error {
	s, err := plainSession(gitDir)
	if err != nil {
		return err
	}
	defer s.Close()
	refs, err := s.AdvertisedReferencesContext(c.Request.Context())
	if err != nil {
		return err
	}
	const line = "# service=git-upload-pack\n"
	fmt.Fprintf(c.Writer, "%04x%s0000", len(line)+4, line)
	return refs.Encode(c.Writer)
}

func plainPack(c *gin.Context, gitDir string, body io.Reader) error {
	s, err := plainSession(gitDir)
	if err != nil {
		return err
	}
	defer s.Close()
	req := packp.NewUploadPackRequest()
	err = req.Decode(body)
	var res *packp.UploadPackResponse
	if err == nil {
		res, err = s.UploadPack(c.Request.Context(), req)
	}
	if err != nil {
		if e, ok := errors.AsType[*errs.Error](err); ok {
			return e // the body's
		}
		return &errs.Error{Kind: errs.Invalid, Code: "malformed_body", Detail: "This request requires git on the server; install git.", Err: err}
	}
	defer res.Close()
	head(c, "application/x-git-upload-pack-result")
	return res.Encode(c.Writer)
}
