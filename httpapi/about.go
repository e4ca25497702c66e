package httpapi

import (
	"strings"

	"github.com/gin-gonic/gin"
)

// Place is where a request of a cluster is to be answered: by the owner of a
// workspace, or by a node. Both are empty where any node will do.
type Place struct {
	Workspace string
	Node      string // by name; it wins
}

// About returns what a route's requests are about: each route says it where it is
// registered. It opens nothing and changes nothing. An id that does not exist has
// the zero Place: the node that was asked answers that.
type About func(c *gin.Context) (Place, error)

// AboutNone is for what is about no workspace, or about several: lists, settings,
// what a body names. Any node answers it.
func AboutNone(*gin.Context) (Place, error) { return Place{}, nil }

// AboutWorkspace is for routes with the id of a workspace as a path parameter, from
// which suffix is removed.
func AboutWorkspace(param, suffix string) About {
	return func(c *gin.Context) (Place, error) {
		id, err := Param(c, param)
		return Place{Workspace: strings.TrimSuffix(id, suffix)}, err
	}
}

// AboutWhere is for routes with another id as a path parameter, of which find
// returns the workspace, and "" for one that does not exist.
func AboutWhere(param string, find func(id string) (workspace string, err error)) About {
	return func(c *gin.Context) (Place, error) {
		id, err := Param(c, param)
		if err != nil || id == "" {
			return Place{}, err
		}
		ws, err := find(id)
		return Place{Workspace: ws}, err
	}
}

// AboutTask is for routes that do something for the task that the request's tags name,
// if they do: find returns its workspace.
func AboutTask(find func(id string) (workspace string, err error)) About {
	return func(c *gin.Context) (Place, error) {
		id := TagsOf(c).TaskID
		if id == "" {
			return Place{}, nil
		}
		ws, err := find(id)
		return Place{Workspace: ws}, err
	}
}

// AtDirectory is the place of a request that opens directories: that of the workspace
// of one of them that another node has, which find returns, with the node, as
// workspaces.Manager.DirectoryAt does. A client that names its node knows better.
func AtDirectory(c *gin.Context, find func(path string) (workspace, node string, err error), paths ...string) (Place, error) {
	if c.Request.Header.Get("Umbra-Node") != "" {
		return Place{}, nil
	}
	for _, path := range paths {
		workspace, node, err := find(path)
		switch {
		case err != nil:
			return Place{}, err
		case workspace != "":
			return Place{Workspace: workspace}, nil
		case node != "":
			return Place{Node: node}, nil
		}
	}
	return Place{}, nil
}

// Unplaced lists the routes that do not say what they are about, as "METHOD
// pattern".
func (s *Server) Unplaced() []string {
	var list []string
	for _, rt := range s.table.all {
		if rt.About == nil {
			list = append(list, rt.Method+" "+rt.Pattern)
		}
	}
	return list
}
