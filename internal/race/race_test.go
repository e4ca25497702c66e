package race

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"umbra/internal/client"
	"umbra/internal/need"
)

// The forks of a race go also when its context ended long ago, as by Ctrl-C or after a race
// of hours.
func TestDropAfterEnd(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	c, err := client.New(client.Options{Address: srv.URL})
	need.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &Race{o: Options{Client: c}, Attempts: []*Attempt{{Fork: "one"}, {Fork: "two"}}}
	need.NoError(t, r.Drop(ctx))
	if len(got) != 2 || got[1] != "DELETE /workspaces/two" {
		t.Errorf("%v", got)
	}
}
