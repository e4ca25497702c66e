package peer

import (
	"errors"
	"net"
	"testing"
)

func TestFromElsewhere(t *testing.T) {
	own := func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.ParseIP("127.0.0.1"), Mask: net.CIDRMask(8, 32)},
			&net.IPNet{IP: net.ParseIP("192.0.2.10"), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2001:db8::10"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	unknown := func() ([]net.Addr, error) { return nil, errors.New("not reported") }
	for _, c := range []struct {
		here, there string
		addresses   func() ([]net.Addr, error)
		want        bool
	}{
		{"127.0.0.1", "127.0.0.1", own, false},
		{"127.0.0.1", "192.0.2.10", own, false}, // bound to another address of the machine
		{"127.0.0.1", "198.51.100.7", own, false},
		{"::ffff:127.0.0.1", "::ffff:192.0.2.10", own, false},
		{"::1", "2001:db8::10", own, false},
		{"192.0.2.10", "127.0.0.1", own, false},
		{"192.0.2.10", "192.0.2.10", own, false},
		{"192.0.2.10", "::ffff:192.0.2.10", own, false},
		{"192.0.2.11", "192.0.2.10", own, false}, // two addresses of the machine
		{"192.0.2.10", "198.51.100.7", own, true},
		{"2001:db8::10", "2001:db8::99", own, true},
		{"192.0.2.10", "198.51.100.7", unknown, false},
	} {
		if got := fromElsewhere(net.ParseIP(c.here), net.ParseIP(c.there), c.addresses); got != c.want {
			t.Errorf("%s from %s: %v", c.here, c.there, got)
		}
	}
}
