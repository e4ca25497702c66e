// Command bench measures umbra and its peers, in the same run and on the same disk,
// and writes the results into docs/BENCHMARKS.md. It is no test: nothing
// fails because it was slow.
//
//	make bench                              the document's table, an hour or so
//	make bench BENCH='-quick'               does every row work? a minute or two
//	bin/bench -list                         the rows
//	bin/bench -run '^write/.*10k' -full     some rows, long
//	bin/bench -disks here,xfs,tmpfs -json out.json
//	bin/bench -before old/umbra -rounds 60  two programs in turns
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"umbra/tests/bench/disk"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/rows"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == peers.SafeVerb {
		exit(safeServer(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == peers.EditVerb {
		exit(peers.Edit(os.Args[2:]))
	}
	// The first signal ends the run in order: programs stopped, mounts undone,
	// folders removed. A second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	exit(bench(ctx, os.Args[1:]))
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: stopped")
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(1)
}

// safeServer is what this program is when a row starts it as a peer.
func safeServer(args []string) error {
	set := flag.NewFlagSet(peers.SafeVerb, flag.ContinueOnError)
	gin := set.Bool("gin", false, "serve with gin")
	if err := set.Parse(args); err != nil {
		return err
	}
	return peers.SafeServer(set.Arg(0), *gin, os.Stdout)
}

type options struct {
	scale    measure.Scale
	run      *regexp.Regexp
	list     bool
	json     string
	document string
	dir      string
	disks    []string
	umbra    string
	before   string
}

func parse(args []string) (options, error) {
	o := options{scale: measure.Normal()}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := set.Bool("quick", false, "a smoke run: small and short; its figures say nothing, and no document gets them")
	full := set.Bool("full", false, "every cell, longer, the slowest peers too")
	run := set.String("run", "", "rows whose name this regexp matches")
	set.BoolVar(&o.list, "list", false, "list the rows and exit")
	set.StringVar(&o.json, "json", "", "write the results to this file (- for standard output)")
	set.StringVar(&o.document, "docs", "", "put the results into this document, in place of earlier ones of the same rows")
	set.StringVar(&o.dir, "dir", os.TempDir(), "folder to work in: the disk \"here\", and where images are made")
	disks := set.String("disks", "here,ext4,xfs", "where to measure: here (-dir), ext4, xfs (loop mounts; left out where they cannot be made), tmpfs (/dev/shm)")
	rounds := set.Int("rounds", 0, "rounds of a loop, in place of the scale's")
	slice := set.Duration("slice", 0, "how long a subject works in a round, in place of the scale's")
	sustained := set.Duration("sustained", 0, "how long the load without a pause is, in place of the scale's")
	set.StringVar(&o.umbra, "umbra", envOr("UMBRA_BIN", "bin/umbra"), "the server's program")
	set.StringVar(&o.before, "before", "", "an earlier server's program: compare the two, and measure nothing else; no document gets the result")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	switch {
	case *quick && *full:
		return o, errors.New("-quick and -full exclude each other")
	case *quick:
		o.scale, o.document = measure.Quick(), ""
	case *full:
		o.scale = measure.Full()
	}
	if o.before != "" {
		o.document = ""
	}
	o.scale.Rounds = cmp.Or(*rounds, o.scale.Rounds)
	o.scale.Slice = cmp.Or(*slice, o.scale.Slice)
	o.scale.Sustained = cmp.Or(*sustained, o.scale.Sustained)
	var err error
	o.run, err = regexp.Compile(*run)
	o.disks = strings.Split(*disks, ",")
	return o, err
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func bench(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var chosen []rows.Row
	all := rows.All(o.scale)
	if o.before != "" {
		all = rows.Before(o.scale, o.before)
	}
	for _, r := range all {
		if o.run.MatchString(r.Name) {
			chosen = append(chosen, r)
		}
	}
	if o.list {
		for _, r := range chosen {
			fmt.Printf("%-32s %s\n", r.Name, r.Title)
		}
		return nil
	}
	for _, program := range []string{o.umbra, cmp.Or(o.before, o.umbra)} {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("a server's program is missing (make build): %w", err)
		}
	}
	results, err := onDisks(ctx, o, chosen)
	// Rows that were measured before a failure are published too.
	return errors.Join(err, publish(o, results))
}

func onDisks(ctx context.Context, o options, chosen []rows.Row) (results []*report.Result, err error) {
	for n, name := range o.disks {
		d, undo, err := mounted(ctx, name, o.dir)
		if errors.Is(err, disk.ErrNoLoop) && n > 0 {
			log("%s is left out: %v", name, err)
			continue
		}
		if err != nil {
			return results, err
		}
		log("== %s: %s", d.Name, d.FS)
		more, err := onDisk(ctx, o, d, n == 0, chosen)
		results = append(results, more...)
		if err = errors.Join(err, undo()); err != nil {
			return results, err
		}
	}
	return results, nil
}

// mounted gives a disk by its name, and what undoes it.
func mounted(ctx context.Context, name, dir string) (disk.Disk, func() error, error) {
	nothing := func() error { return nil }
	switch name {
	case "here":
		d, err := disk.Of(name, dir)
		return d, nothing, err
	case "tmpfs":
		d, err := disk.Of(name, "/dev/shm")
		return d, nothing, err
	}
	home, err := os.MkdirTemp(dir, "umbra-bench-disk-")
	if err != nil {
		return disk.Disk{}, nil, err
	}
	d, undo, err := disk.Loop(ctx, name, home)
	if err != nil {
		return d, nil, errors.Join(err, os.Remove(home))
	}
	return d, func() error { return errors.Join(undo(), os.Remove(home)) }, nil
}

func onDisk(ctx context.Context, o options, d disk.Disk, first bool, chosen []rows.Row) (results []*report.Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var failed error
	for _, row := range chosen {
		if !first && !row.EveryDisk {
			continue
		}
		log("-- %s on %s", row.Name, d.Name)
		r := &report.Result{Row: row.Name, Disk: d.Name, Title: row.Title + " (" + d.FS + ")", About: row.About, Conditions: conditions(ctx, o.scale.Name, d)}
		switch err := runRow(ctx, o, d, self, row, r); {
		case ctx.Err() != nil:
			return results, errors.Join(context.Cause(ctx), failed)
		case err != nil:
			// One row that cannot be measured keeps no other from it.
			log("%s on %s: %v", row.Name, d.Name, err)
			failed = errors.Join(failed, fmt.Errorf("%s on %s: %w", row.Name, d.Name, err))
		default:
			results = append(results, r)
			fmt.Println(r.Markdown())
		}
	}
	return results, failed
}

func runRow(ctx context.Context, o options, d disk.Disk, self string, row rows.Row, r *report.Result) (err error) {
	env, err := measure.NewEnv(o.scale, d, o.umbra, self, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	return row.Run(ctx, env, r)
}

func publish(o options, results []*report.Result) error {
	var failed error
	if o.json != "" {
		failed = writeJSON(o.json, results)
	}
	if o.document != "" && len(results) > 0 {
		failed = errors.Join(failed, report.Update(o.document, results, rows.Order(o.disks)))
	}
	return failed
}

func writeJSON(name string, results []*report.Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if name == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// log reports progress on standard error.
func log(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
