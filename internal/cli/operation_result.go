package cli

import (
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/plan"
)

// A resultReport is the result of an operation as JSON or YAML.
type resultReport struct {
	Type       string        `json:"type"` // "result"
	ExitCode   int           `json:"exitCode"`
	Operation  string        `json:"operation,omitempty"`
	Cluster    string        `json:"cluster"`
	Kind       string        `json:"kind"`
	Outcome    event.Outcome `json:"outcome"`
	Failures   []hostFailure `json:"failures,omitempty"`
	Seconds    float64       `json:"seconds"`
	Changed    int           `json:"changed"`             // number of steps
	Forgotten  bool          `json:"forgotten,omitempty"` // removed from the state although hosts failed
	Reverted   bool          `json:"reverted,omitempty"`  // the previous settings were restored
	Ready      []string      `json:"ready,omitempty"`
	Kubeconfig string        `json:"kubeconfig,omitempty"`
}

type hostFailure struct {
	Host  string `json:"host,omitempty"`
	Task  string `json:"task"`
	Title string `json:"title"`
	event.Failure
}

// reportEnd shows how an operation ended. It returns an exitError if the exit code is
// not 0.
func (r *operationRunner) reportEnd(res *lifecycle.Result, o operation, p *plan.Plan) error {
	code := exitCodeForOutcome(res.Outcome)
	if r.format != view.Text {
		rep := resultReport{
			Type: "result", ExitCode: code, Operation: res.Operation, Cluster: res.Cluster, Kind: p.Operation, Outcome: res.Outcome,
			Seconds: res.Duration.Seconds(), Changed: res.Changed, Forgotten: res.Forgotten, Reverted: res.Reverted,
			Ready: res.Ready, Kubeconfig: res.Kubeconfig,
		}
		for _, f := range res.Failures {
			rep.Failures = append(rep.Failures, hostFailure{f.Host, f.Task, f.Title, f.Failure})
		}
		if err := view.WriteItem(r.Out, r.format, rep); ignoreReaderGone(err) != nil {
			return err
		}
	}
	e := view.Ending{Result: res, Kind: kinds.Kind(p.Operation), File: o.file, Style: r.errStyle()}
	if o.file == "-" {
		e.File = "" // standard input cannot be read again
	}
	switch {
	case code != exitDone:
		e.Failed(r.Err)
		return &exitError{code: code}
	case r.format != view.Text:
	case res.Outcome == event.Paused:
		e.Style = r.outStyle()
		e.Paused(r.Out)
	case p.IsEmpty() && res.Operation == "":
		return view.WritePlan(r.Out, p, true, r.outStyle()) // "nothing to do"
	default:
		e.Style = r.outStyle()
		e.Succeeded(r.Out)
	}
	return nil
}
