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

// A prepare makes a plan: it calls one of the service's methods with a request.
type prepare func(ctx context.Context, svc lifecycle.Service, progress event.Sink) (lifecycle.Prepared, error)

// An operation is an operation as a command requests it.
type operation struct {
	prepare prepare
	file    string // the cluster file, for the summary
	// named reports whether the user gave the cluster's name on the command
	// line. Together with --yes it allows the removal.
	named        bool
	allowRemoval bool
	// confirmed reports whether the user confirmed the operation when it first
	// began.
	confirmed bool
	brief     bool // show the plan without its changes
}

// view returns a view of events in the format of -o.
func (a *app) view(p *plan.Plan) view.View {
	if a.format != view.Text {
		return view.NewRecord(a.Out, a.Err, a.format)
	}
	return a.people(p)
}

// people returns a view for people, on stderr.
func (a *app) people(p *plan.Plan) view.View {
	return view.ForPeople(a.Err, view.Options{Style: a.style(), Debug: a.debug, Plan: p, Size: a.Size, Now: a.env.Now})
}

// ready makes the plan, shows the progress in v, and prints warnings. The caller
// closes the plan.
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

// drain shows the rest of the queue. It discards all later output of a stream whose
// reader has stopped reading, so that nothing waits for that reader again.
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

// warn prints diagnostics to stderr.
func (a *app) warn(list diag.List) {
	view.Diagnostics(a.Err, list, a.style())
}

// warnOnce returns a function that prints each diagnostic once, even if a command
// finds it several times.
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

// operate plans an operation, asks for confirmation, and applies it.
func (a *app) operate(ctx context.Context, o operation) error {
	_, err := a.operated(ctx, o)
	return err
}

// operated is like operate and returns the result, or nil if nothing was applied.
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
		if a.format == view.Text || a.Asks && !a.yes { // the user must see the plan before the question
			if err := view.Plan(a.Err, pl, o.brief, a.style()); unlessUnread(err) != nil {
				return nil, err
			} else if err != nil && !a.yes {
				return nil, problem(idNotConfirmed, "run the command again with --yes, or read its output to the end",
					"the output of the plan was closed before its end; nothing was changed")
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
	if err != nil { // the operation ran, but its result could not be saved
		if ended != nil && shown(res, err) {
			return res, ended
		}
		return res, &exitError{code: exitFailed, err: err}
	}
	return res, ended
}

// shown reports whether an error is one of an operation's failures, which were
// printed already.
func shown(res *lifecycle.Result, err error) bool {
	var list diag.List
	return errors.As(err, &list) && !slices.ContainsFunc(list, func(d diag.Diagnostic) bool {
		return !slices.ContainsFunc(res.Failures, func(f lifecycle.HostFailure) bool { return f.Reason == d.ID && f.Message == d.Message })
	})
}

// apply applies a plan and shows its progress. The work does not wait for the reader
// of the output. At the end apply waits for the reader, unless ctx is done.
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

// stopping prints, after a signal, which steps the program waits for and how to
// continue later.
func (a *app) stopping(v *view.Queue, p *plan.Plan) {
	steps := ""
	if running := v.Running(); len(running) > 0 {
		steps = ": " + strings.Join(running[:min(len(running), 3)], ", ")
		if n := len(running) - 3; n > 0 {
			steps += fmt.Sprintf(" and %d more", n)
		}
	}
	fmt.Fprintf(v, "Stopping: waiting until running steps reach a safe point%s.\n", steps)
	next := "slipway resume " + p.Cluster
	if p.Operation == string(lifecycle.Defrag) { // it leaves nothing half done
		next = "slipway etcd defrag " + p.Cluster
	}
	fmt.Fprintf(v, "Press Ctrl-C again to stop waiting. Run '%s' to continue later.\n", next)
}

// confirm asks the user to confirm a plan. It returns an error unless the user does.
func (a *app) confirm(ctx context.Context, prepared lifecycle.Prepared, o operation) error {
	p := prepared.Plan()
	if len(p.Removes) == 0 || o.allowRemoval || o.named && a.yes {
		return a.agree(ctx, "Continue?")
	}
	whose, name := "cluster", p.Cluster
	if leaving := prepared.Leaving(); len(leaving) == 1 {
		whose, name = "host", leaving[0]
	}
	if !a.Asks {
		return problem(idRemoval, "allow the removal with --allow-removal, or type the "+whose+"'s name on a terminal",
			"the plan removes %s", strings.Join(p.Removes, ", "))
	}
	return a.typed(ctx, fmt.Sprintf("Type the %s's name (%s) to confirm the removal: ", whose, name), name)
}

// agree asks a question at the terminal and returns an error unless the user agrees.
// With --yes it does not ask.
func (a *app) agree(ctx context.Context, question string) error {
	switch {
	case a.yes:
		return nil
	case !a.Asks:
		return problem(idNoTerminal, "use --yes to continue without confirmation",
			"cannot ask for confirmation: standard input or standard error is not a terminal")
	}
	return a.typed(ctx, question+" [y/N] ", "y", "yes")
}

// typed asks a question and returns an error unless the user types one of the answers.
func (a *app) typed(ctx context.Context, question string, answers ...string) error {
	fmt.Fprint(a.Err, a.style().Text(question))
	line := make(chan string, 1)
	go func() { // ends with the program at the latest: a read cannot be cancelled
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
	return problem(idNotConfirmed, "", "not confirmed; nothing was changed")
}

// A resultReport is the result of an operation as JSON or YAML.
type resultReport struct {
	Type       string          `json:"type"` // "result"
	ExitCode   int             `json:"exitCode"`
	Operation  string          `json:"operation,omitempty"`
	Cluster    string          `json:"cluster"`
	Kind       string          `json:"kind"`
	Outcome    event.Outcome   `json:"outcome"`
	Failures   []failureOfHost `json:"failures,omitempty"`
	Seconds    float64         `json:"seconds"`
	Changed    int             `json:"changed"`             // number of steps
	Forgotten  bool            `json:"forgotten,omitempty"` // removed from the state although hosts failed
	Reverted   bool            `json:"reverted,omitempty"`  // the previous settings were restored
	Ready      []string        `json:"ready,omitempty"`
	Kubeconfig string          `json:"kubeconfig,omitempty"`
}

type failureOfHost struct {
	Host  string `json:"host,omitempty"`
	Task  string `json:"task"`
	Title string `json:"title"`
	event.Failure
}

// end shows how an operation ended. It returns an exitError if the exit code is not 0.
func (a *app) end(res *lifecycle.Result, o operation, p *plan.Plan) error {
	code := outcomeCode(res.Outcome)
	if a.format != view.Text {
		rep := resultReport{
			Type: "result", ExitCode: code, Operation: res.Operation, Cluster: res.Cluster, Kind: p.Operation, Outcome: res.Outcome,
			Seconds: res.Duration.Seconds(), Changed: res.Changed, Forgotten: res.Forgotten, Reverted: res.Reverted,
			Ready: res.Ready, Kubeconfig: res.Kubeconfig,
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
		e.File = "" // standard input cannot be read again
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

// outcomeCode returns the exit code of an operation's outcome.
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
