package forward

import (
	"context"
	_ "embed"
	"maps"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
)

//go:embed openapi.yaml
var document []byte

// OpenAPI returns the headers of a cluster. The routes are for other nodes alone.
func (f *Forwarder) OpenAPI() []byte { return document }

// Register adds the routes among nodes, which do not exist for clients.
func (f *Forwarder) Register(r *httpapi.Router) {
	internal := httpapi.Route{Internal: true, Access: httpapi.AccessWrite, About: httpapi.AboutNone}
	hello := internal
	hello.Method, hello.Pattern, hello.Handler, hello.Access = http.MethodGet, helloPath, f.hello, httpapi.AccessRead
	r.Handle(hello)
	handover := internal
	handover.Method, handover.Pattern, handover.Handler = http.MethodPost, handoverPath, named(f.o.Node.Handover)
	r.Handle(handover)
	if f.o.Adopt != nil {
		adopt, arrive := internal, internal
		adopt.Method, adopt.Pattern, adopt.Handler = http.MethodPost, adoptPath, f.adopt
		r.Handle(adopt)
		arrive.Method, arrive.Pattern, arrive.Handler = http.MethodPost, arrivePath, named(f.o.Arrive)
		r.Handle(arrive)
	}
	if f.o.Drop != nil {
		drop := internal
		drop.Method, drop.Pattern, drop.Handler = http.MethodPost, dropPath, f.drop
		r.Handle(drop)
	}
	if f.o.Held != nil {
		held := internal
		held.Method, held.Pattern, held.Handler = http.MethodPost, heldPath, f.held
		r.Handle(held)
	}
	left := internal
	left.Method, left.Pattern, left.Handler = http.MethodPost, leftPath, f.left
	r.Handle(left)
	look := internal
	look.Method, look.Pattern, look.Handler = http.MethodPost, lookPath, f.look
	r.Handle(look)
}

// hello is not reached with a signature for this run: any other is answered by
// Receive's refusal, which names it.
func (f *Forwarder) hello(c *gin.Context) error {
	c.Header(runHeader, f.run)
	httpapi.JSON(c, http.StatusOK, map[string]string{"node": f.o.Node.Name()})
	return nil
}

// required returns a parameter of a request among nodes.
func required(c *gin.Context, name string) (string, error) {
	value, given, err := httpapi.Query(c, name)
	if err == nil && !given {
		err = errs.New(errs.Invalid, "invalid_parameter", "The %s parameter is required.", name).With("field", name)
	}
	return value, err
}

func (f *Forwarder) adopt(c *gin.Context) error {
	workspace, err := required(c, "workspace")
	if err != nil {
		return err
	}
	dir, err := required(c, "into")
	if err != nil {
		return err
	}
	done, err := f.o.Adopt(c.Request.Context(), workspace, dir)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, done)
	return nil
}

// named handles what another node asks of the workspace that its request names.
func named(do func(ctx context.Context, workspace string) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		workspace, err := required(c, "workspace")
		if err == nil {
			err = do(c.Request.Context(), workspace)
		}
		if err != nil {
			return err
		}
		httpapi.JSON(c, http.StatusOK, map[string]string{"workspace": workspace})
		return nil
	}
}

// drop is what the owner of a workspace that was purged says.
func (f *Forwarder) drop(c *gin.Context) error {
	ignored, err := httpapi.QueryBool(c, "ignored", false)
	if err != nil {
		return err
	}
	text, _, err := httpapi.Query(c, "blobs")
	if err != nil {
		return err
	}
	blobs := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	return named(func(ctx context.Context, workspace string) error { return f.o.Drop(ctx, workspace, blobs, ignored) })(c)
}

// held is what the owner of a workspace asks before it purges that.
func (f *Forwarder) held(c *gin.Context) error {
	workspace, err := required(c, "workspace")
	if err != nil {
		return err
	}
	blobs, err := required(c, "blobs")
	if err != nil {
		return err
	}
	list, err := f.o.Held(workspace, strings.Split(blobs, ","))
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, list)
	return nil
}

// look is what umbra cluster drain says once it has changed the node's row.
func (f *Forwarder) look(c *gin.Context) error {
	f.o.Node.Look()
	httpapi.JSON(c, http.StatusOK, map[string]string{"node": f.o.Node.Name()})
	return nil
}

// left is what a node says that is about to stop.
func (f *Forwarder) left(c *gin.Context) error {
	name, err := required(c, "node")
	if err != nil {
		return err
	}
	f.o.Node.ForgetNode(name)
	f.mu.Lock()
	maps.DeleteFunc(f.known, func(_ string, o Owner) bool { return o.Node == name })
	f.mu.Unlock()
	for _, p := range f.o.Node.Peers() {
		if p.Name == name {
			f.peer(ownerOf(p)) // also where nothing was sent to it yet
		}
	}
	var peers []*peer // of former addresses, too
	f.mu.Lock()
	for _, p := range f.peers {
		if p.name == name {
			peers = append(peers, p)
		}
	}
	f.mu.Unlock()
	for _, p := range peers {
		p.setLeft(c.Request.Context())
	}
	httpapi.JSON(c, http.StatusOK, map[string]string{"node": name})
	return nil
}
