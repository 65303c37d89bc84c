package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/plan"
)

// prepare makes a plan; it is one of the service's methods with its request.
type prepare func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error)

// an operation, as a command asks for it.
type operation struct {
	prepare prepare
	file    string // the cluster file, for the ending
	// named says that the user wrote the cluster's name on the command
	// line: with --yes that is leave to remove it.
	named        bool
	allowRemoval bool
	// confirmed says that leave was given when the operation first began.
	confirmed bool
	brief     bool // show the plan without its single changes
}

// view is a view of events, in the format that is asked for.
func (a *app) view(p *plan.Plan) view.View {
	if a.format != view.Text {
		return view.NewRecord(a.Out, a.Err, a.format)
	}
	return a.people(p)
}

// people is a view for people, on stderr.
func (a *app) people(p *plan.Plan) view.View {
	return view.ForPeople(a.Err, view.Options{Style: a.style(), Debug: a.debug, Plan: p, Size: a.Size, Now: a.env.Now})
}

// ready makes the plan, and shows the way to it. The caller closes it.
func (a *app) ready(ctx context.Context, do prepare, v view.View) (lifecycle.Prepared, error) {
	p, err := a.planned(ctx, do, v)
	if err != nil {
		return nil, refuse(err)
	}
	a.warn(p.Findings().Warnings())
	return p, nil
}

func (a *app) planned(ctx context.Context, do prepare, v view.View) (lifecycle.Prepared, error) {
	q := view.NewQueue(v, a.env.Now)
	defer a.drain(ctx, q)
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, err
	}
	defer a.talk.through(q)()
	return do(ctx, svc, q)
}

// drain shows what is still to be shown. A stream that nobody reads any more
// gets nothing further: nothing shall wait for it again.
func (a *app) drain(ctx context.Context, q *view.Queue) {
	data, talk := q.Drain(ctx)
	if !data {
		a.Out = io.Discard
	}
	if !talk {
		a.Err = io.Discard
		a.talk.through(io.Discard)
	}
}

// warn tells of warnings.
func (a *app) warn(list diag.List) {
	view.Diagnostics(a.Err, list, a.style())
}

// warnOnce makes a function that warns of each thing once, however often a
// command comes across it.
func (a *app) warnOnce() func(diag.List) {
	var mu sync.Mutex
	said := map[string]bool{}
	return func(list diag.List) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range list {
			if !said[d.Message] {
				said[d.Message] = true
				a.warn(diag.List{d})
			}
		}
	}
}

// operate plans, asks, and applies.
func (a *app) operate(ctx context.Context, o operation) error {
	_, err := a.operated(ctx, o)
	return err
}

// operated is operate, and answers what came of it, nil for nothing.
func (a *app) operated(ctx context.Context, o operation) (res *lifecycle.Result, err error) {
	p, err := a.ready(ctx, o.prepare, a.view(nil))
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := p.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}()
	pl := p.Plan()
	if !pl.Empty() && !o.confirmed {
		if a.format == view.Text || a.Asks && !a.yes { // who is asked must have seen it
			if err := view.Plan(a.Err, pl, o.brief, a.style()); unlessUnread(err) != nil {
				return nil, err
			} else if err != nil && !a.yes {
				return nil, problem(idNotConfirmed, "run it again with --yes, or read its output to the end", "the plan was not read to its end; nothing was touched")
			}
		}
		if err := a.confirm(ctx, p, o); err != nil {
			return nil, err
		}
	}
	gone := func() {}
	if pl.Operation == string(lifecycle.Delete) || pl.Operation == "rollback" {
		gone = a.forget(ctx, pl.Cluster)
	}
	res, err = a.apply(ctx, p)
	if res == nil {
		return nil, refuse(err)
	}
	if res.Outcome == event.Succeeded || res.Forgotten {
		gone()
	}
	ended := a.end(res, o, pl)
	if err != nil { // it ran, and could not be recorded to its end
		if ended != nil && shown(res, err) {
			return res, ended
		}
		return res, &exitError{code: exitFailed, err: err}
	}
	return res, ended
}

// shown reports whether an error is one of the failures of an operation, which
// have been shown.
func shown(res *lifecycle.Result, err error) bool {
	var list diag.List
	return errors.As(err, &list) && !slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
		return !slices.ContainsFunc(res.Failures, func(f lifecycle.HostFailure) bool { return f.Reason == d.ID && f.Message == d.Message })
	})
}

// apply carries a plan out, and shows it. The work does not wait for who reads
// about it, not even when they have left; in the end the reader is waited for, unless ctx is done.
func (a *app) apply(ctx context.Context, p lifecycle.Prepared) (*lifecycle.Result, error) {
	pl := p.Plan()
	v := view.NewQueue(a.view(pl), a.env.Now)
	defer a.drain(ctx, v)
	defer a.talk.through(v)()
	a.working.Store(&pl.Cluster)
	defer a.working.Store(nil)
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		a.stopping(v, pl)
	})
	res, err := p.Apply(ctx, v)
	if !stop() {
		<-told
	}
	return res, err
}

// stopping says, after a signal, what is waited for and how to go on.
func (a *app) stopping(v *view.Queue, p *plan.Plan) {
	waiting := "what is under way"
	if running := v.Running(); len(running) > 0 {
		waiting = strings.Join(running[:min(len(running), 3)], ", ")
		if n := len(running) - 3; n > 0 {
			waiting += fmt.Sprintf(" and %d more", n)
		}
	}
	fmt.Fprintf(v, "Stopping: waiting for %s to reach a safe point.\n", waiting)
	on := "slipway resume " + p.Cluster
	if p.Operation == string(lifecycle.Defrag) { // there is nothing that it leaves half done
		on = "slipway etcd defrag " + p.Cluster
	}
	fmt.Fprintf(v, "Ctrl-C again stops waiting. Go on later with: %s\n", on)
}

// confirm gets leave to go on.
func (a *app) confirm(ctx context.Context, prepared lifecycle.Prepared, o operation) error {
	p := prepared.Plan()
	if len(p.Removes) == 0 || o.allowRemoval || o.named && a.yes {
		return a.agree(ctx, "Go on?")
	}
	whose, name := "cluster", p.Cluster
	if leaving := prepared.Leaving(); len(leaving) == 1 {
		whose, name = "host", leaving[0]
	}
	if !a.Asks {
		return problem(idRemoval, "allow it with --allow-removal, or on a terminal by typing the "+whose+"'s name",
			"the plan removes %s", strings.Join(p.Removes, ", "))
	}
	return a.typed(ctx, fmt.Sprintf("Type the %s's name (%s) to remove all this: ", whose, name), name)
}

// agree gets leave for what the question says: by --yes, or from the person
// at the terminal.
func (a *app) agree(ctx context.Context, question string) error {
	switch {
	case a.yes:
		return nil
	case !a.Asks:
		return problem(idNoTerminal, "say --yes to go on without being asked", "there is no terminal to ask on")
	}
	return a.typed(ctx, question+" [y/N] ", "y", "yes")
}

// typed asks, and wants one of the answers.
func (a *app) typed(ctx context.Context, question string, answers ...string) error {
	fmt.Fprint(a.Err, a.style().Text(question))
	line := make(chan string, 1)
	go func() { // ends with the program at the latest: a read cannot be called off
		s, _ := bufio.NewReader(a.In).ReadString('\n')
		line <- s
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return context.Cause(ctx)
	case s := <-line:
		s = strings.TrimSpace(s)
		for _, want := range answers {
			if strings.EqualFold(s, want) {
				return nil
			}
		}
	}
	return problem(idNotConfirmed, "", "not confirmed; nothing was touched")
}

// A resultReport is how an operation ended, for programs.
type resultReport struct {
	Type       string          `json:"type"` // "result"
	ExitCode   int             `json:"exitCode"`
	Operation  string          `json:"operation,omitempty"`
	Cluster    string          `json:"cluster"`
	Kind       string          `json:"kind"`
	Outcome    event.Outcome   `json:"outcome"`
	Failures   []failureOfHost `json:"failures,omitempty"`
	Seconds    float64         `json:"seconds"`
	Changed    int             `json:"changed"`             // steps
	Forgotten  bool            `json:"forgotten,omitempty"` // off the records, failures or not
	Reverted   bool            `json:"reverted,omitempty"`  // back to the settings before
	Ready      []string        `json:"ready,omitempty"`
	Kubeconfig string          `json:"kubeconfig,omitempty"`
}

type failureOfHost struct {
	Host  string `json:"host,omitempty"`
	Task  string `json:"task"`
	Title string `json:"title"`
	event.Failure
}

// end shows how an operation ended and answers its exit code.
func (a *app) end(res *lifecycle.Result, o operation, p *plan.Plan) error {
	code := outcomeCode(res.Outcome)
	if a.format != view.Text {
		rep := resultReport{
			Type: "result", ExitCode: code, Operation: res.Operation, Cluster: res.Cluster, Kind: p.Operation, Outcome: res.Outcome,
			Seconds: res.Duration.Seconds(), Changed: res.Changed, Forgotten: res.Forgotten, Reverted: res.Reverted, Ready: res.Ready, Kubeconfig: res.Kubeconfig,
		}
		for _, f := range res.Failures {
			rep.Failures = append(rep.Failures, failureOfHost{f.Host, f.Task, f.Title, f.Failure})
		}
		if err := view.Item(a.Out, a.format, rep); unlessUnread(err) != nil {
			return err
		}
	}
	e := view.Ending{Result: res, Kind: lifecycle.Kind(p.Operation), File: o.file, Style: a.style()}
	if o.file == "-" {
		e.File = "" // nobody can read it again
	}
	switch {
	case code != exitDone:
		e.Failed(a.Err)
		return &exitError{code: code}
	case a.format != view.Text:
	case res.Outcome == event.Paused:
		e.Style = a.outStyle()
		e.Paused(a.Out)
	case p.Empty() && res.Operation == "":
		return view.Plan(a.Out, p, true, a.outStyle()) // "nothing to do"
	default:
		e.Style = a.outStyle()
		e.Succeeded(a.Out)
	}
	return nil
}

// outcomeCode is the exit code of an operation's outcome.
func outcomeCode(o event.Outcome) int {
	switch o {
	case event.Succeeded, event.Paused:
		return exitDone
	case event.Partial:
		return exitPartial
	case event.Cancelled:
		return exitInterrupted
	}
	return exitFailed
}
