package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/replay"
	"umbra/internal/term"
)

// FolderArgument reads the DIR of umbra serve DIR. Anything but a directory is
// wrong use; whether it may be a workspace is checked when it is opened.
func FolderArgument(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	dir, err := filepath.Abs(cmp.Or(args[0], "."))
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", exitcode.Usage(fmt.Errorf("%s does not exist", term.Name(args[0])))
	case err != nil:
		return "", exitcode.Usage(err)
	case !info.IsDir():
		return "", exitcode.Usage(fmt.Errorf("%s is not a directory", term.Name(args[0])))
	}
	return dir, nil
}

// AnyNumber is a limit of Args: as many arguments as there are.
const AnyNumber = math.MaxInt

// Args refuses too few and too many arguments.
func Args(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low {
			return exitcode.Usage(fmt.Errorf("an argument is missing: %s", strings.TrimSuffix(cmd.UseLine(), " [flags]")))
		}
		if len(args) > high {
			return exitcode.Usage(fmt.Errorf("unexpected argument %q", args[high]))
		}
		return nil
	}
}

// One refuses any number of arguments but one, and says what is needed.
func One(needed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exitcode.Usage(errors.New(needed))
		}
		return nil
	}
}

// UnknownCommand is the error for a verb that does not exist; it names the ones
// that are spelled like it.
func UnknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q; '%s --help' lists the commands", name, cmd.CommandPath())
}

// Parent makes cmd one that only has commands below it: alone it prints its help,
// and another word is wrong use.
func Parent(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exitcode.Usage(UnknownCommand(cmd, args[0]))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// NoArgs refuses arguments that a verb does not take.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exitcode.Usage(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

// ExpandHome does for configuration files, which no shell reads, what a shell
// would have done.
func ExpandHome(dir string) string {
	rest, ok := strings.CutPrefix(dir, "~/")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return filepath.Join(home, rest)
	}
	return dir
}

// PickWorkspace finds it: that of --task, else --workspace, else the one that
// the working directory lies in, else the only one.
func (v *Verb) PickWorkspace(ctx context.Context) (Place, error) {
	if v.Task != "" {
		t, err := v.Client.Task(ctx, v.Task)
		if err != nil {
			return Place{}, err
		}
		p := Place{ID: t.WorkspaceID}
		if t.Workspace != nil {
			p.Root = *t.Workspace
		}
		if v.Workspace != "" {
			named, err := v.FindWorkspace(ctx, v.Workspace)
			if err != nil {
				return Place{}, err
			}
			if named.ID != p.ID {
				return Place{}, exitcode.Usage(fmt.Errorf("task %s is on workspace %s, not on %s", v.Task, p.ID, named.ID))
			}
		}
		return p, nil
	}
	if v.Workspace != "" {
		w, err := v.FindWorkspace(ctx, v.Workspace)
		return PlaceOf(w), err
	}
	list, _, err := v.Client.Workspaces(ctx)
	if err != nil {
		return Place{}, err
	}
	if here, err := WorkingDir(); err == nil {
		if w, ok := around(list, here); ok {
			return PlaceOf(w), nil
		}
	}
	switch len(list) {
	case 0:
		return Place{}, errors.New("no workspace exists yet; umbra serve DIR opens one")
	case 1:
		return PlaceOf(list[0]), nil
	}
	return Place{}, exitcode.Usage(fmt.Errorf("which of %d workspaces? Say --workspace:\n%s", len(list), names(list)))
}

// FindWorkspace finds one by its id, else by a folder that is its root or lies
// in it.
func (v *Verb) FindWorkspace(ctx context.Context, name string) (client.Workspace, error) {
	if !strings.ContainsRune(name, '/') && name != "." && name != ".." {
		var w client.Workspace
		_, err := v.Client.JSON(ctx, client.Request{Path: client.Path("workspaces", name)}, &w)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusNotFound {
			return w, err
		}
	}
	folder, err := filepath.Abs(name)
	if err != nil {
		return client.Workspace{}, err
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	list, _, err := v.Client.Workspaces(ctx)
	if err != nil {
		return client.Workspace{}, err
	}
	// What is not there lies in none: a mistyped id is no folder of the one here.
	// A root that is gone is one all the same.
	_, gone := os.Lstat(folder)
	if w, ok := around(list, folder); ok && (gone == nil || *w.Root == folder) {
		return w, nil
	}
	if gone == nil {
		return client.Workspace{}, fmt.Errorf("%s is in no workspace; umbra workspaces lists them", term.Name(name))
	}
	return client.Workspace{}, fmt.Errorf("workspace %s not found; umbra workspaces lists them", term.Name(name))
}

// PickTask gives --task, else the workspace's only one.
func (v *Verb) PickTask(ctx context.Context, w Place) (string, error) {
	if v.Task != "" {
		return v.Task, nil
	}
	var found []client.Task
	for item, err := range client.Pages[client.Task](ctx, v.Client, "/tasks", "tasks", url.Values{"workspace": {w.ID}}, maxNamed) {
		if err != nil {
			return "", err
		}
		if found = append(found, item.Value); len(found) == maxNamed {
			break
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("workspace %s has no task yet", w.ID)
	case 1:
		return found[0].ID, nil
	}
	var b strings.Builder
	for _, t := range found {
		fmt.Fprintf(&b, "\n  %s  %s", t.ID, term.Cut(term.Line(t.Goal), 60))
	}
	return "", exitcode.Usage(fmt.Errorf("which task of workspace %s? Say --task; the newest:%s", w.ID, b.String()))
}

// Confirmed asks a question; anything but yes is no.
func Confirmed(in io.Reader, out io.Writer, question string) bool {
	_, _ = io.WriteString(out, question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// Verb is what a run of a verb works with.
type Verb struct {
	Connection
	Client *client.Client
	HangUp func() error // gives up the client; once is enough
	Stdout io.Writer
	Stderr io.Writer

	JSON    bool
	Color   string
	noPager bool

	Workspace, Task, Subtask string
}

// OutputFlags are those of verbs that print for people.
func (v *Verb) OutputFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&v.JSON, "json", false, "print JSON, as the server returns it")
	fs.StringVar(&v.Color, "color", string(term.Auto), "color the output (`WHEN`: auto, always or never)")
	fs.Lookup("color").NoOptDefVal = string(term.Always)
}

// PagerFlag adds --no-pager.
func (v *Verb) PagerFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&v.noPager, "no-pager", false, "do not page ($UMBRA_PAGER, $GIT_PAGER, $PAGER, else less, on a terminal)")
}

// WorkspaceFlag adds --workspace.
func (v *Verb) WorkspaceFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&v.Workspace, "workspace", "w", "", "workspace `WS` by id or directory; default: the one around the current directory, else the only one")
}

// TaskFlags adds --task and --subtask.
func (v *Verb) TaskFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&v.Task, "task", "t", "", "the task `T`")
	fs.StringVarP(&v.Subtask, "subtask", "s", "", "only the subtask `S`")
}

// Action makes a command's RunE of what it does: it connects, and reports the
// result or the error.
func (v *Verb) Action(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if v.Color != "" {
			if _, err := term.ParseColor(v.Color); err != nil {
				return exitcode.Usage(err)
			}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		// A reader that leaves is an error of writing, not the end of a server that
		// works in this process.
		pipes := make(chan os.Signal, 1)
		signal.Notify(pipes, syscall.SIGPIPE)
		defer signal.Stop(pipes)
		v.Stdout, v.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		c, closer, err := v.Open(ctx, cmd, v.Stderr)
		if err != nil {
			return err
		}
		v.Client = c
		v.HangUp = sync.OnceValue(closer)
		defer func() {
			// As it is where there is no second one: a status must be found in it.
			if failed := v.HangUp(); failed != nil {
				err = errors.Join(err, failed)
			}
		}()
		return Misused(do(ctx, args))
	}
}

// Misused marks an error as wrong use if the server refused the request as invalid.
func Misused(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) {
		return exitcode.Usage(err)
	}
	if _, ok := errors.AsType[*replay.Misuse](err); ok {
		return exitcode.Usage(err)
	}
	return err
}

// Print writes for people: colored, paged if asked for.
func (v *Verb) Print(page bool, write func(o *term.Output) error) error {
	o := term.Open(v.Stdout, term.Options{Color: term.Color(v.Color), Page: page && !v.noPager})
	err := write(o)
	if err == nil {
		err = o.Flush()
	}
	if page {
		// All is read: a person may look at it for long, and the data directory is
		// for others meanwhile. An error is reported at the end.
		_ = v.HangUp()
	}
	if failed := o.Close(); err == nil {
		err = failed
	}
	if term.Closed(err) {
		return nil // who read it has seen enough
	}
	return err
}

// Answer writes what a verb did: with --json the server's answer as it came, or another
// value as JSON, and else what write prints.
func (v *Verb) Answer(value any, write func(o *term.Output)) error {
	if !v.JSON {
		return v.Print(false, func(o *term.Output) error {
			write(o)
			return nil
		})
	}
	raw, ok := value.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(value); err != nil {
			return err
		}
	}
	return v.PrintJSON(raw)
}

// PrintJSON writes an answer as it came.
func (v *Verb) PrintJSON(raw []byte) error {
	if n := len(raw); n == 0 || raw[n-1] != '\n' {
		raw = append(raw, '\n')
	}
	return v.Print(false, func(o *term.Output) error {
		_, err := o.Write(raw)
		return err
	})
}

// PrintList writes {"<name>":[…]} from elements as they came.
func (v *Verb) PrintList(name string, items func(yield func(json.RawMessage, error) bool)) error {
	return v.Print(false, func(o *term.Output) error {
		o.Printf("{%q:[", name)
		first := true
		for raw, err := range items {
			if err != nil {
				return err
			}
			if !first {
				o.Printf(",\n")
			}
			first = false
			if _, err := o.Write(raw); err != nil {
				return err
			}
		}
		o.Printf("]}\n")
		return nil
	})
}
