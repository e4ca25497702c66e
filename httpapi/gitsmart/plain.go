package gitsmart

import (
	"fmt"
	"io"

	"github.com/gin-gonic/gin"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"

	"umbra/internal/errs"
)

// Without git on the machine go-git makes the packs: protocol v0, whole clones
// and fetches of everything wanted; no shallow and no partial clones. It holds
// the pack's index in memory, so that a history that is too large is refused.

func plainSession(gitDir string) (transport.UploadPackSession, error) {
	repo, err := gogit.PlainOpen(gitDir)
	if err != nil {
		return nil, err
	}
	endpoint, err := transport.NewEndpoint("/")
	if err != nil {
		return nil, err
	}
	return server.NewServer(server.MapLoader{endpoint.String(): repo.Storer}).NewUploadPackSession(endpoint, nil)
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
	if err := req.Decode(body); err != nil {
		return errs.New(errs.Invalid, "malformed_body", "This request requires git on the server; install git.")
	}
	res, err := s.UploadPack(c.Request.Context(), req)
	if err != nil {
		return err
	}
	defer res.Close()
	head(c, "application/x-git-upload-pack-result")
	return res.Encode(c.Writer)
}
