package forward

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"umbra/httpapi"
)

// Headers among nodes. A client's are removed.
const (
	signature = "Umbra-Forwarded"
	runHeader = "Umbra-Run"
)

// claims is what a node says of a request that it forwards, under its signature.
// Wall clocks play no part: a request is for one run of the receiver, and has a
// number of the sender's run that is used once.
type claims struct {
	Node   string        `json:"node"`         // that forwards
	Sender string        `json:"from"`         // its run
	Number uint64        `json:"n"`            // of the sender's run
	To     string        `json:"to,omitempty"` // the receiver's run; empty: it is asked for
	Claim  bool          `json:"claim,omitempty"`
	Open   bool          `json:"open,omitempty"`
	Part   bool          `json:"part,omitempty"`
	Token  string        `json:"token,omitempty"`
	Scope  httpapi.Scope `json:"scope"`
	Roots  []string      `json:"roots,omitempty"`
	Owner  bool          `json:"owner,omitempty"`
	Remote string        `json:"remote,omitempty"` // the client's address
}

// newRun names one run of a program.
func newRun() string { return rand.Text()[:16] }

// mac covers all but the headers and the body: who may change those on their way
// can change what is asked for, as with every proxy, but cannot make a request.
func mac(key, payload []byte, r *http.Request, target string) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range [][]byte{payload, []byte(r.Method), []byte(r.Host), []byte(target)} {
		var size [4]byte
		for i := range size {
			size[i] = byte(len(part) >> (24 - 8*i))
		}
		m.Write(size[:])
		m.Write(part)
	}
	return m.Sum(nil)
}

// sign adds the signature. target is the request's target as it will be sent.
func sign(key []byte, r *http.Request, target string, c claims) error {
	payload, err := json.Marshal(c)
	if err != nil {
		return err
	}
	e := base64.RawURLEncoding
	r.Header.Set(signature, e.EncodeToString(payload)+"."+e.EncodeToString(mac(key, payload, r, target)))
	return nil
}

// Signed reports whether a request says that another node has forwarded it. It may
// be forged.
func Signed(r *http.Request) bool { return r.Header.Get(signature) != "" }

// verify returns what a valid signature says; ok is false where there is none. The
// header is removed in any case.
func verify(key []byte, r *http.Request) (c claims, ok bool) {
	values := r.Header.Values(signature)
	if len(values) == 0 {
		return c, false
	}
	value := values[0]
	r.Header.Del(signature)
	if len(values) > 1 || len(key) == 0 {
		return c, false
	}
	first, second, _ := strings.Cut(value, ".")
	payload, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		return c, false
	}
	given, err := base64.RawURLEncoding.DecodeString(second)
	if err != nil || !hmac.Equal(given, mac(key, payload, r, r.RequestURI)) {
		return c, false
	}
	return c, json.Unmarshal(payload, &c) == nil
}

// window is how many numbers of a sender are remembered, and maxSenders how many
// runs of others. A number before the window is refused.
const (
	window     = 1 << 16
	maxSenders = 256
)

// replays remembers which numbers were used, as RFC 4303 does for packets: a
// request that was recorded on its way cannot be sent again. It is safe for
// concurrent use.
type replays struct {
	mu      sync.Mutex
	senders map[string]*used
	turn    uint64
}

type used struct {
	top  uint64 // highest number
	last uint64 // turn of its last use
	bits [window / 64]uint64
}

// use reports whether a number of a sender was not used before.
func (p *replays) use(sender string, n uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	u := p.senders[sender]
	if u == nil {
		if p.senders == nil {
			p.senders = map[string]*used{}
		}
		if len(p.senders) >= maxSenders {
			p.evict()
		}
		u = &used{}
		p.senders[sender] = u
	}
	u.last = p.turn
	switch {
	case n > u.top:
		if n-u.top >= window {
			u.bits = [window / 64]uint64{}
		} else {
			for i := u.top + 1; i < n; i++ {
				u.bits[i%window/64] &^= 1 << (i % 64)
			}
		}
		u.top = n
	case u.top-n >= window, u.bits[n%window/64]&(1<<(n%64)) != 0:
		return false
	}
	u.bits[n%window/64] |= 1 << (n % 64)
	return true
}

// evict forgets the sender that was not heard of for longest: one that ended long
// ago.
func (p *replays) evict() {
	oldest, at := "", uint64(1<<64-1)
	for name, u := range p.senders {
		if u.last < at {
			oldest, at = name, u.last
		}
	}
	delete(p.senders, oldest)
}
