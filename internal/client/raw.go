package client

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
)

// Raw sends a request as it is given, once, and gives the answer whatever its
// status is: for protocols that have answers of their own. The caller closes
// its body.
func (c *Client) Raw(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if c.host != "" {
		req.Host = c.host
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.actor != "" && method != http.MethodGet {
		req.Header.Set("X-Actor", c.actor)
	}
	res, err := c.http.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = unreached(c.base.Host, e.Err)
	}
	return res, err
}
