package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// network is the network of one node, in a namespace of its own, with a wire to where
// the test, PostgreSQL and the store are. What it drops it drops without a word.
type network struct {
	t      *testing.T
	number int
	pid    int // of a process in it
	rules  [][]string
}

const nodePort = "7701"

func (n *network) own() string     { return fmt.Sprintf("10.77.%d.2", n.number) }
func (n *network) outside() string { return fmt.Sprintf("10.77.%d.1", n.number) }
func (n *network) device() string  { return fmt.Sprintf("v%d", n.number) }

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// within runs ip(8) in the node's namespace.
func (n *network) within(args ...string) {
	n.t.Helper()
	command(n.t, "nsenter", append([]string{"--net=/proc/" + strconv.Itoa(n.pid) + "/ns/net", "ip"}, args...)...)
}

// ownRulesLast lets rules of a namespace decide on what is for its own addresses.
func ownRulesLast(ip func(args ...string)) {
	ip("rule", "add", "pref", "100", "lookup", "local")
	ip("rule", "del", "pref", "0", "lookup", "local")
}

func newNetwork(t *testing.T, number int) *network {
	t.Helper()
	n := &network{t: t, number: number}
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	need.NoError(t, holder.Start())
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	n.pid = holder.Process.Pid
	command(t, "ip", "link", "add", n.device(), "type", "veth", "peer", "name", "e0", "netns", strconv.Itoa(n.pid))
	command(t, "ip", "addr", "add", n.outside()+"/24", "dev", n.device())
	command(t, "ip", "link", "set", n.device(), "up")
	n.within("link", "set", "lo", "up")
	n.within("addr", "add", n.own()+"/24", "dev", "e0")
	n.within("link", "set", "e0", "up")
	n.within("route", "add", "default", "via", n.outside())
	ownRulesLast(n.within)
	return n
}

// dropIn has the node lose what comes from an address, and from one of its ports.
func (n *network) dropIn(from, port string) {
	rule := []string{"pref", "10", "iif", "e0", "from", from}
	if port != "" {
		rule = append(rule, "ipproto", "tcp", "sport", port)
	}
	rule = append(rule, "blackhole")
	n.within(append([]string{"rule", "add"}, rule...)...)
	n.rules = append(n.rules, append([]string{"nsenter", "--net=/proc/" + strconv.Itoa(n.pid) + "/ns/net", "ip", "rule", "del"}, rule...))
}

// dropOut has what the node sends to an address, and a port of it, be lost on its way.
func (n *network) dropOut(to, port string) {
	rule := []string{"pref", "10", "iif", n.device(), "to", to}
	if port != "" {
		rule = append(rule, "ipproto", "tcp", "dport", port)
	}
	rule = append(rule, "blackhole")
	command(n.t, "ip", append([]string{"rule", "add"}, rule...)...)
	n.rules = append(n.rules, append([]string{"ip", "rule", "del"}, rule...))
}

// heal ends all losses.
func (n *network) heal() {
	n.t.Helper()
	for _, rule := range n.rules {
		command(n.t, rule[0], rule[1:]...)
	}
	n.rules = nil
}

func portOf(k *clustertest.Link) string {
	return k.Address()[strings.LastIndexByte(k.Address(), ':')+1:]
}

// partitions are what a network loses, by name: packets, so that no connection is
// ended by it.
var partitions = map[string]func(n *network, m *member, others []*network){
	"the node from the engine": func(n *network, m *member, _ []*network) {
		for _, k := range m.engines {
			n.dropIn(n.outside(), portOf(k))
			n.dropOut(n.outside(), portOf(k))
		}
	},
	"the way to the engine": func(n *network, m *member, _ []*network) {
		for _, k := range m.engines {
			n.dropOut(n.outside(), portOf(k))
		}
	},
	"the way back from the engine": func(n *network, m *member, _ []*network) {
		for _, k := range m.engines {
			n.dropIn(n.outside(), portOf(k))
		}
	},
	"the way to the store":        func(n *network, m *member, _ []*network) { n.dropOut(n.outside(), portOf(m.store)) },
	"the way back from the store": func(n *network, m *member, _ []*network) { n.dropIn(n.outside(), portOf(m.store)) },
	"the node from another": func(n *network, _ *member, others []*network) {
		n.dropIn(others[0].own(), "")
		n.dropOut(others[0].own(), "")
	},
	"the way to the others": func(n *network, _ *member, others []*network) {
		for _, o := range others {
			n.dropOut(o.own(), "")
		}
	},
	"the way back from the others": func(n *network, _ *member, others []*network) {
		for _, o := range others {
			n.dropIn(o.own(), "")
		}
	},
	"the node from everything": func(n *network, m *member, others []*network) {
		for _, k := range append([]*clustertest.Link{m.store}, m.engines...) {
			n.dropIn(n.outside(), portOf(k))
			n.dropOut(n.outside(), portOf(k))
		}
		for _, o := range others {
			n.dropIn(o.own(), "")
			n.dropOut(o.own(), "")
		}
	},
}

// TestNetworks runs clients against three nodes in network namespaces of their own,
// while packets are lost between them, and to and from the engine and the store.
// UMBRA_CLUSTER_PARTITIONS says how many times; not set: each once.
func TestNetworks(t *testing.T) {
	need.Soak(t, "it makes network namespaces")
	need.Root(t)
	need.Tool(t, "ip")
	need.Tool(t, "nsenter")
	if os.Getenv("UMBRA_IN_NETWORK") == "" {
		self, err := os.Executable()
		need.NoError(t, err)
		// A namespace for all: nothing of the machine's network is changed.
		cmd := exec.Command(self, "-test.run", "^TestNetworks$", "-test.v", "-test.timeout", "2h")
		cmd.Env = append(os.Environ(), "UMBRA_IN_NETWORK=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	command(t, "ip", "link", "set", "lo", "up")
	ownRulesLast(func(args ...string) { command(t, "ip", args...) })
	need.NoError(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600))
	w := clients(t)
	w.pair, w.s3 = clustertest.Start(t, clustertest.Options{Standby: true}), blobtest.Start(t)
	var nets []*network
	for i := range 3 {
		nets = append(nets, newNetwork(t, i+1))
	}
	for i, n := range nets {
		w.members = append(w.members, w.join(fmt.Sprintf("n%d", i+1), i == 0, place{outside: n.outside(), own: n.own() + ":" + nodePort, more: []string{"--insecure"},
			config: fmt.Sprintf("http:\n  hosts: [%s, %s, %s]\n", nets[0].own(), nets[1].own(), nets[2].own()),
			wrap: func(cmd *exec.Cmd) {
				cmd.Args = append([]string{"nsenter", "--net=/proc/" + strconv.Itoa(n.pid) + "/ns/net", cmd.Path}, cmd.Args[1:]...)
				cmd.Path = need.Tool(t, "nsenter")
			}}))
	}
	w.open(3)
	settle := w.run(6)
	kinds := make([]string, 0, len(partitions))
	for kind := range partitions {
		kinds = append(kinds, kind)
	}
	if n, err := strconv.Atoi(os.Getenv("UMBRA_CLUSTER_PARTITIONS")); err == nil {
		for all := kinds; len(kinds) < n; {
			kinds = append(kinds, all[rand.IntN(len(all))])
		}
	}
	for i, kind := range kinds {
		at := rand.IntN(len(nets))
		others := []*network{nets[(at+1)%3], nets[(at+2)%3]}
		before, begun := w.acknowledged(), time.Now()
		partitions[kind](nets[at], w.members[at], others)
		pause(4)
		nets[at].heal()
		w.recovered(kind)
		t.Logf("%d: %s (n%d): %d acknowledged, %d meanwhile, %v", i, kind, at+1, w.acknowledged(), w.acknowledged()-before, time.Since(begun).Round(10*time.Millisecond))
		if t.Failed() {
			break
		}
	}
	settle()
}
