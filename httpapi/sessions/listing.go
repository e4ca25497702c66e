package sessions

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/session"
	"umbra/internal/workspace"
)

const (
	pageSize    = 1000
	pageSizeMax = 10_000
	maxPage     = 1 << 32
	treeDepth   = 2
	maxDepth    = 4096
	maxNodes    = 50_000
)

type entry struct {
	Name         string `json:"name"`
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	IsDir        bool   `json:"isDir"`
	IsSymlink    bool   `json:"isSymlink"`
	Size         int64  `json:"size"`
	Mtime        string `json:"mtime"`
}

type listBody struct {
	Entries  []entry `json:"entries"`
	Page     int64   `json:"page"`
	PageSize int64   `json:"pageSize"`
	Total    int     `json:"total"`
}

// ignores reads which rules hide something.
func ignores(c *gin.Context) (o workspace.ListOptions, err error) {
	if o.GitIgnore, err = httpapi.QueryBool(c, "respect_git_ignore", true); err != nil {
		return o, err
	}
	o.CodeyIgnore, err = httpapi.QueryBool(c, "respect_codey_ignore", true)
	return o, err
}

func (d *Dialect) listFolder(c *gin.Context, ses session.Session) error {
	t, err := queryFolder(c)
	if err != nil {
		return err
	}
	o, err := ignores(c)
	if err != nil {
		return err
	}
	if o.Recursive, err = httpapi.QueryBool(c, "recursive", false); err != nil {
		return err
	}
	page, err := httpapi.QueryInt(c, "page", 1, 1, maxPage)
	if err != nil {
		return err
	}
	size, err := httpapi.QueryInt(c, "page_size", pageSize, 1, pageSizeMax)
	if err != nil {
		return err
	}
	o.From, o.Count = int((page-1)*size), int(size)
	if t.InArea() {
		return d.listArea(c, ses, t, o, page, size)
	}
	w, err := d.open(c, ses)
	if err != nil {
		return err
	}
	defer w.Release()
	part, total, err := w.List(c.Request.Context(), t.Path, o)
	if err != nil {
		return noFile(err)
	}
	body := listBody{Entries: make([]entry, len(part)), Page: page, PageSize: size, Total: total}
	for i := range part {
		body.Entries[i] = entryOf(target{Path: part[i].Path}, part[i])
	}
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

func entryOf(t target, l workspace.Listed) entry {
	e := entry{IsDir: l.Info.IsDir(), IsSymlink: l.Info.IsSymlink(), Size: l.Info.Size, Mtime: stampNs(l.Info.MtimeNs)}
	if e.IsDir {
		e.Size = 0
	}
	e.Path, e.PathEncoding = t.JSON()
	e.Name = baseOf(e.Path)
	return e
}

// baseOf returns the name in a path of a body, in the same encoding.
func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// node is one of a tree; directories within the depth have Children.
type node struct {
	Path         string   `json:"path"`
	PathEncoding string   `json:"path_encoding,omitempty"`
	Name         string   `json:"name"`
	IsDir        bool     `json:"isDir"`
	IsSymlink    bool     `json:"isSymlink,omitempty"`
	Children     *[]*node `json:"children,omitempty"`
	Truncated    bool     `json:"truncated,omitempty"`
}

func (d *Dialect) tree(c *gin.Context, ses session.Session) error {
	t, err := queryFolder(c)
	if err != nil {
		return err
	}
	o, err := ignores(c)
	if err != nil {
		return err
	}
	depth, err := httpapi.QueryInt(c, "depth", treeDepth, 1, maxDepth)
	if err != nil {
		return err
	}
	if t.InArea() {
		return d.treeArea(c, ses, t, int(depth))
	}
	w, err := d.open(c, ses)
	if err != nil {
		return err
	}
	defer w.Release()
	root, truncated, err := w.Tree(c.Request.Context(), t.Path, int(depth), maxNodes, o)
	if err != nil {
		return noFile(err)
	}
	body := nodeOf(root)
	body.Truncated = truncated
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

func nodeOf(n *workspace.Node) *node {
	out := &node{IsDir: n.Type.IsDir(), IsSymlink: n.Type != 0 && !n.Type.IsDir()}
	out.Path, out.PathEncoding = n.Path.JSON()
	out.Name = baseOf(out.Path)
	if n.Within {
		children := make([]*node, len(n.Children))
		for i, k := range n.Children {
			children[i] = nodeOf(k)
		}
		out.Children = &children
	}
	return out
}
