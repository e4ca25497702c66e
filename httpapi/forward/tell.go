package forward

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"umbra/httpapi"
)

// TellToLook has the node at an address look at its row now, not with its next beat. It
// is for a verb, which is no node: key is the cluster's.
func TellToLook(ctx context.Context, key []byte, address string) error {
	c := claims{Sender: newRun(), Scope: httpapi.ScopeWrite}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+lookPath, http.NoBody)
		if err != nil {
			return err
		}
		c.Number++
		if err := sign(key, r, r.URL.RequestURI(), c); err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxWhole))
		resp.Body.Close()
		run := resp.Header.Get(runHeader)
		switch {
		case err != nil || resp.StatusCode == http.StatusOK:
			return err
		case run == "" || c.To != "":
			return fmt.Errorf("%s is no node of this cluster: status %d", address, resp.StatusCode)
		}
		c.To = run // the answer to a first request names it
	}
}
