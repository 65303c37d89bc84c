package view

import (
	"fmt"
	"time"

	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

var epoch = time.Date(2026, 11, 20, 18, 15, 2, 0, time.UTC)

// newDemoOperation returns the plan and the events of an operation on three hosts, with
// all kinds of events: planned, retried, failed, skipped.
func newDemoOperation() (*plan.Plan, []event.Event) {
	p := &plan.Plan{Cluster: "prod", Operation: "create"}
	hosts := []string{"cp1", "w1", "w2"}
	tasks := []struct{ module, id, title string }{
		{"os", "os.kernel", "set up the kernel"},
		{"runtime", "runtime.images", "import images"},
		{"kubeadm", "kubeadm.join", "join node"},
	}
	p.Steps = append(p.Steps, plan.Step{Module: "bundle", Task: "bundle.open", Title: "open the bundle", State: plan.Change})
	for _, t := range tasks {
		for _, h := range hosts {
			if t.id != "kubeadm.join" || h != "cp1" {
				p.Steps = append(p.Steps, plan.Step{Module: t.module, Task: t.id, Title: t.title, Host: h, State: plan.Change})
			}
		}
	}
	at := func(ms int, e event.Event) event.Event {
		e.Time, e.Cluster, e.Operation = epoch.Add(time.Duration(ms)*time.Millisecond), "prod", "20261120-181502-create-x7k2"
		return e
	}
	step := func(ms int, typ event.Type, task int, host string, o event.Outcome) event.Event {
		t := tasks[task]
		return at(ms, event.Event{Type: typ, Module: t.module, Task: t.id, Title: t.title, Host: host, Outcome: o})
	}
	progress := step(9000, event.StepProgress, 1, "w1", "")
	progress.Done, progress.Total = 131<<20, 312<<20
	late := step(19500, event.StepProgress, 1, "w1", "")
	late.Done, late.Total = 262<<20, 312<<20
	retry := step(20500, event.StepRetry, 2, "w1", "")
	retry.Attempt, retry.Message = 2, "the API server does not answer yet"
	output := step(20600, event.StepOutput, 2, "w1", "")
	output.Message = "[preflight] Running pre-flight checks\n\x1b[31m[join]\x1b[0m\r\n"
	failed := step(31000, event.StepFinished, 2, "w2", event.Failed)
	failed.Failure = &event.Failure{Reason: "DiskFull", Message: "no space left on /var/lib/kubelet", Remedy: "free 2 GiB on /var/lib/kubelet"}
	return p, []event.Event{
		at(0, event.Event{Type: event.OperationStarted, Kind: "create"}),
		at(100, event.Event{Type: event.Note, Message: "connecting to 3 hosts"}),
		at(200, event.Event{Type: event.StepStarted, Module: "bundle", Task: "bundle.open", Title: "open the bundle"}),
		at(1400, event.Event{Type: event.StepFinished, Module: "bundle", Task: "bundle.open", Title: "open the bundle", Outcome: event.Changed}),
		step(1500, event.StepStarted, 0, "cp1", ""), step(1500, event.StepStarted, 0, "w1", ""), step(1500, event.StepStarted, 0, "w2", ""),
		step(2100, event.StepFinished, 0, "cp1", event.Changed), step(2200, event.StepFinished, 0, "w1", event.Unchanged),
		step(2300, event.StepStarted, 1, "cp1", ""), step(2300, event.StepStarted, 1, "w1", ""),
		step(2500, event.StepFinished, 0, "w2", event.Changed), step(2600, event.StepStarted, 1, "w2", ""),
		func() event.Event { e := progress; e.Time = epoch.Add(4 * time.Second); e.Done = 12 << 20; return e }(),
		progress,
		step(9100, event.StepFinished, 1, "cp1", event.Changed),
		late,
		step(20000, event.StepFinished, 1, "w1", event.Changed), step(20100, event.StepStarted, 2, "w1", ""),
		retry, output,
		step(25000, event.StepFinished, 1, "w2", event.Changed), step(25000, event.StepStarted, 2, "w2", ""),
		step(30000, event.StepFinished, 2, "w1", event.Changed),
		failed,
		at(31100, event.Event{
			Type: event.StepFinished, Module: "dns", Task: "dns.hosts", Title: "write the hosts file", Host: "w2", Outcome: event.Skipped,
			Failure: &event.Failure{Reason: "Skipped", Message: "what it needs has failed", CausedBy: "kubeadm.join on w2"},
		}),
		at(31200, event.Event{Type: event.OperationFinished, Outcome: event.Failed}),
	}
}

// newOperationOnHosts returns an operation on n hosts with long names, k of them busy.
func newOperationOnHosts(n, k int) (*plan.Plan, []event.Event) {
	p := &plan.Plan{Cluster: "edge", Operation: "apply"}
	events := []event.Event{{Type: event.OperationStarted, Kind: "apply", Cluster: "edge", Time: epoch}}
	for i := range n {
		h := fmt.Sprintf("edge-%04d", i)
		p.Steps = append(p.Steps, plan.Step{Module: "os", Task: "os.kernel", Title: "set up the kernel", Host: h, State: plan.Change})
		e := event.Event{
			Module: "os", Task: "os.kernel", Title: "set up the kernel", Host: h,
			Time: epoch.Add(time.Duration(i) * time.Millisecond),
		}
		switch {
		case i < n/3:
			e.Type, e.Outcome = event.StepFinished, event.Changed
		case i < n/3+k:
			e.Type = event.StepStarted
		default:
			continue
		}
		events = append(events, e)
	}
	return p, events
}
