package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
)

// Progress is how far a long work is; All is 0 where that is not known.
type Progress struct {
	Step string `json:"step"`
	Done int64  `json:"done"`
	All  int64  `json:"all"`
}

// maxWorkLine bounds one line of a work's answer.
const maxWorkLine = 64 << 20

// Work sends a request whose answer reports how it goes on (application/x-ndjson),
// passes each progress to a function (may be nil), and reads the result into dst;
// raw is the result's text as it came. What failed on the way is an *Error; an
// answer that ends without a result is an error too: whether the work was done
// is not known then.
func (c *Client) Work(ctx context.Context, r Request, progress func(Progress), dst any) (raw []byte, err error) {
	r.Accept = "application/x-ndjson"
	res, err := c.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxWorkLine)
	for lines.Scan() {
		var line struct {
			Progress *Progress       `json:"progress"`
			Done     json.RawMessage `json:"done"`
			Error    string          `json:"error"`
			Detail   string          `json:"detail"`
			Status   int             `json:"status"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, notJSON(r.Path, err)
		}
		switch {
		case line.Error != "":
			return nil, &Error{Status: line.Status, Code: line.Error, Detail: line.Detail, Body: append([]byte(nil), lines.Bytes()...)}
		case line.Done != nil:
			if dst != nil {
				err = json.Unmarshal(line.Done, dst)
			}
			return line.Done, err
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, errors.New("the server stopped before it was done; say it again to go on")
}
