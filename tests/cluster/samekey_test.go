package cluster

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestSameKey: a key that two requests at two nodes use at the same time, on two workspaces, is
// the one's that was done first.
func TestSameKey(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "2s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2")}
	var files [2]string
	for i, s := range nodes {
		var made task
		s.Do("POST", "/tasks", object("goal", "g", "kind", "virtual", "namespace", []string{fmt.Sprint(i)})).Expect(http.StatusCreated).JSON(&made)
		files[i] = "/tasks/" + made.ID + "/content?path=f"
		s.Do("PUT", files[i], []byte("zero"))
	}
	for _, key := range []string{"one", "two"} {
		// The second request has found that the key is new, and waits for its body.
		c, err := net.Dial("tcp", strings.TrimPrefix(nodes[1].URL, "http://"))
		need.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\nExpect: 100-continue\r\nIdempotency-Key: %s\r\n\r\n", files[1], c.RemoteAddr(), key)
		need.NoError(t, err)
		answers := bufio.NewReader(c)
		line, err := answers.ReadString('\n')
		if need.NoError(t, err); !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q", line)
		}
		_, err = answers.ReadString('\n')
		need.NoError(t, err)
		first := nodes[0].Do("PUT", files[0], []byte(key), "Idempotency-Key: "+key).Expect(http.StatusOK)
		_, err = c.Write([]byte(key))
		need.NoError(t, err)
		second, err := http.ReadResponse(answers, nil)
		if need.NoError(t, err); second.StatusCode != http.StatusOK {
			t.Errorf("the second: %d", second.StatusCode)
		}
		for _, s := range nodes {
			if again := s.Do("PUT", files[0], []byte(key), "Idempotency-Key: "+key); again.Status != http.StatusOK || string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				t.Errorf("the first again: %d %s, not %s", again.Status, again.Body, first.Body)
			}
			s.Do("PUT", files[1], []byte(key), "Idempotency-Key: "+key).ExpectError(http.StatusUnprocessableEntity, "idempotency_key_reused")
		}
	}
}
