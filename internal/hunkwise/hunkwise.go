// Package hunkwise asks a person about hunks one by one, with the keys of git add -p,
// for umbra review. It only asks: what was decided is the caller's to carry out.
package hunkwise

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Hunk is one piece of a difference.
type Hunk struct {
	ID    string
	Path  string
	Text  string
	By    string // who made it; may be empty
	Mixed bool   // it cannot be rejected: others changed the same lines since
	Parts []Hunk // what it can be split into
}

// Answers are what was decided.
type Answers struct {
	Accept, Reject []string // ids
}

const help = `y - accept this hunk
n - reject this hunk: its lines are taken back
q - quit; neither this hunk nor the ones after it are decided on
a - accept this hunk and all later ones of the file
d - reject this hunk and all later ones of the file
j - leave this hunk undecided, see the next undecided one
k - leave this hunk undecided, see the previous undecided one
s - split the hunk into smaller ones
? - print help
`

// dialog is one run.
type dialog struct {
	in    *bufio.Reader
	out   io.Writer
	show  func(text string) error
	list  []Hunk
	state []byte // by hunk: 0, 'y' or 'n'
}

// Ask asks about hunks. show prints the text of a hunk. The end of the input is q.
func Ask(in io.Reader, out io.Writer, hunks []Hunk, show func(text string) error) (Answers, error) {
	d := &dialog{in: bufio.NewReader(in), out: out, show: show, list: hunks, state: make([]byte, len(hunks))}
	err := d.run()
	var a Answers
	for i, s := range d.state {
		switch s {
		case 'y':
			a.Accept = append(a.Accept, d.list[i].ID)
		case 'n':
			a.Reject = append(a.Reject, d.list[i].ID)
		}
	}
	return a, err
}

func (d *dialog) run() error {
	at, print := d.next(-1, 1), true
	for at >= 0 {
		h := &d.list[at]
		if print {
			by := ""
			if h.By != "" {
				by = "  (" + h.By + ")"
			}
			if _, err := fmt.Fprintf(d.out, "%s%s\n", h.Path, by); err != nil {
				return err
			}
			if err := d.show(h.Text); err != nil {
				return err
			}
		}
		print = true
		keys := "y,n,q,a,d,j,k"
		if len(h.Parts) > 0 {
			keys += ",s"
		}
		fmt.Fprintf(d.out, "(%d/%d) Accept this hunk [%s,?]? ", at+1, len(d.list), keys)
		line, err := d.in.ReadString('\n')
		if err != nil && line == "" {
			fmt.Fprintln(d.out)
			if err == io.EOF {
				return nil
			}
			return err
		}
		switch key := strings.ToLower(strings.TrimSpace(line)); key {
		case "y":
			d.state[at] = 'y'
			at = d.on(at)
		case "n":
			if h.Mixed {
				fmt.Fprintln(d.out, "Others changed the same lines since; it cannot be rejected alone.")
				print = false
				continue
			}
			d.state[at] = 'n'
			at = d.on(at)
		case "q":
			return nil
		case "a", "d":
			d.file(at, key)
			at = d.on(at)
		case "j", "k":
			step := map[string]int{"j": 1, "k": -1}[key]
			to := d.next(at, step)
			if to < 0 {
				fmt.Fprintln(d.out, map[string]string{"j": "No later hunk is undecided.", "k": "No earlier hunk is undecided."}[key])
				print = false
				continue
			}
			at = to
		case "s":
			if len(h.Parts) == 0 {
				fmt.Fprintln(d.out, "This hunk cannot be split.")
				print = false
				continue
			}
			d.split(at)
		default:
			fmt.Fprintf(d.out, "%s", help)
			print = false
		}
	}
	return nil
}

// next returns the next hunk in a direction that is not decided on, -1 for none.
func (d *dialog) next(at, step int) int {
	for i := at + step; i >= 0 && i < len(d.list); i += step {
		if d.state[i] == 0 {
			return i
		}
	}
	return -1
}

// on returns the next undecided hunk, from the beginning after the last.
func (d *dialog) on(at int) int {
	if i := d.next(at, 1); i >= 0 {
		return i
	}
	return d.next(-1, 1)
}

// file decides on a hunk and all later undecided ones of its file.
func (d *dialog) file(at int, key string) {
	state := map[string]byte{"a": 'y', "d": 'n'}[key]
	for i := at; i < len(d.list) && d.list[i].Path == d.list[at].Path; i++ {
		if d.state[i] != 0 || state == 'n' && d.list[i].Mixed {
			continue
		}
		d.state[i] = state
	}
}

func (d *dialog) split(at int) {
	n := len(d.list[at].Parts)
	fmt.Fprintf(d.out, "Split into %d hunks.\n", n)
	parts := make([]Hunk, n)
	for i, p := range d.list[at].Parts {
		p.Path, p.By, p.Mixed, p.Parts = d.list[at].Path, d.list[at].By, d.list[at].Mixed, nil
		parts[i] = p
	}
	d.list = append(d.list[:at:at], append(parts, d.list[at+1:]...)...)
	d.state = append(d.state[:at:at], append(make([]byte, n), d.state[at+1:]...)...)
}
