package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/testutil/golden"
)

func TestPlain_ShowsAnOperation(t *testing.T) {
	p, events := newDemoOperation()
	for name, o := range map[string]Options{
		"plain.golden":       {Plan: p},
		"plain-debug.golden": {Plan: p, Debug: true, Style: Style{Colour: true}},
	} {
		var b strings.Builder
		v := NewPlain(&b, o)
		for _, e := range events {
			v.Emit(e)
		}
		v.Close()
		v.Emit(events[0])
		golden.Check(t, "testdata/"+name, b.String())
	}
}

func TestEventView_WritesEventsAsJSONAndYAML(t *testing.T) {
	_, events := newDemoOperation()
	var out, talk bytes.Buffer
	v := NewEventView(&out, &talk, JSON)
	for _, e := range events {
		v.Emit(e)
	}
	fmt.Fprintln(v, "a log line")
	v.Close()
	dec := json.NewDecoder(&out)
	for _, want := range events {
		var got event.Event
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if talk.String() != "a log line\n" {
		t.Errorf("talk %q", talk.String())
	}
	out.Reset()
	v = NewEventView(&out, &talk, YAML)
	v.Emit(events[0])
	v.Emit(events[1])
	golden.Check(t, "testdata/record.yaml", out.String())
}

// liveTest plays events on a screen, with a clock that follows the events.
type liveTest struct {
	screen *screen
	view   *Live
	now    time.Time
}

func newLiveTest(t *testing.T, p *plan.Plan, columns, rows int, style Style) *liveTest {
	s := &liveTest{screen: &screen{t: t, columns: columns, rows: rows}, now: epoch}
	s.view = NewLive(s.screen, Options{
		Plan: p, Style: style, Frames: make(chan time.Time), // drawn by hand
		Size: func() (int, int) { return s.screen.columns, s.screen.rows },
		Now:  func() time.Time { return s.now },
	})
	t.Cleanup(s.view.Close)
	return s
}

func (s *liveTest) emitEvents(events []event.Event) {
	for _, e := range events {
		s.now = e.Time
		s.view.Emit(e)
		s.view.drawFrame()
	}
}

func TestLive_ShowsAnOperation(t *testing.T) {
	p, events := newDemoOperation()
	s := newLiveTest(t, p, 80, 24, Style{Unicode: true})
	var b strings.Builder
	for i, e := range events {
		s.emitEvents([]event.Event{e})
		switch i {
		case 2, 14, 20, 23:
			fmt.Fprintf(&b, "===== at %s\n%s", Duration(s.now.Sub(epoch)), s.screen)
		}
	}
	s.view.Close()
	fmt.Fprintf(&b, "===== closed\n%s", s.screen)
	golden.Check(t, "testdata/live.golden", b.String())
	if s.screen.hidden {
		t.Error("the cursor is hidden at the end")
	}
	if want := len(events) + 1; s.screen.writes != want {
		t.Errorf("%d writes for %d frames: a frame in pieces flickers", s.screen.writes, want)
	}
}

func TestLive_SumsUpHostsThatDoNotFit(t *testing.T) {
	for _, tc := range []struct{ n, k, columns, rows int }{
		{1000, 50, 100, 24}, {1000, 3, 60, 10}, {5, 2, 40, 5}, {1, 1, 20, 2},
	} {
		name := fmt.Sprintf("live-%d-hosts.golden", tc.n*1000+tc.k)
		t.Run(name, func(t *testing.T) {
			p, events := newOperationOnHosts(tc.n, tc.k)
			s := newLiveTest(t, p, tc.columns, tc.rows, Style{Unicode: true})
			s.emitEvents(events)
			golden.Check(t, "testdata/"+name, s.screen.String())
			if n := len(s.view.block); n > tc.rows {
				t.Errorf("%d lines on %d rows", n, tc.rows)
			}
			for _, l := range s.view.block {
				if len([]rune(l)) >= tc.columns {
					t.Errorf("%q is wider than %d columns", l, tc.columns)
				}
			}
		})
	}
}

// TestLive_ShortensLongNames: long names are shortened so that their ends remain visible.
// Parts that do not fit are omitted and not cut.
func TestLive_ShortensLongNames(t *testing.T) {
	var b strings.Builder
	for _, width := range []int{40, 80, 120} {
		p := &plan.Plan{Cluster: "edge", Operation: "create"}
		var events []event.Event
		for i := range 3 {
			e := event.Event{
				Module: "runtime", Task: "runtime.images", Title: "import images", Type: event.StepStarted, Time: epoch,
				Host: fmt.Sprintf("edge-frankfurt-rack-12-unit-07-node-%04d.dc1.example.org", i),
			}
			p.Steps = append(p.Steps, plan.Step{Module: e.Module, Task: e.Task, Title: e.Title, Host: e.Host, State: plan.Change})
			events = append(events, e)
			switch i {
			case 1:
				e.Type, e.Done, e.Total = event.StepProgress, 131<<20, 312<<20
				events = append(events, e)
			case 2:
				e.Type, e.Outcome, e.Failure = event.StepFinished, event.Failed, &event.Failure{Message: "mode 0644 → 0755, and so on…"}
				events = append(events, e)
			}
		}
		for _, unicode := range []bool{true, false} {
			s := newLiveTest(t, p, width, 24, Style{Unicode: unicode})
			s.emitEvents(events)
			fmt.Fprintf(&b, "===== %d columns, unicode %v\n%s", width, unicode, s.screen)
		}
	}
	golden.Check(t, "testdata/live-long-names.golden", b.String())
}

// TestLive_ShowsProgressOfABuild: a build in an operation shows the same progress as a
// separate build.
func TestLive_ShowsProgressOfABuild(t *testing.T) {
	p := &plan.Plan{
		Cluster: "prod", Operation: "create",
		Steps: []plan.Step{{Module: "bundle", Task: "bundle.ready", Title: "have the bundle", State: plan.Change}},
	}
	at := func(sec int, typ event.Type, message string, done, total int64, unit string) event.Event {
		return event.Event{
			Module: "bundle", Task: "bundle.ready", Title: "have the bundle", Time: epoch.Add(time.Duration(sec) * time.Second),
			Type: typ, Message: message, Done: done, Total: total, Unit: unit,
		}
	}
	started := event.Event{Type: event.OperationStarted, Time: epoch, Cluster: "prod", Kind: "create"}
	events := []event.Event{
		started, at(0, event.StepStarted, "", 0, 0, ""),
		at(1, event.StepProgress, "fetching etcd v3.7.0 linux/amd64: go.uber.org/zap", 0, 0, ""),
		at(2, event.Note, "etcd v3.7.0 linux/amd64 is in the cache", 0, 0, ""),
		at(9, event.StepProgress, "compiling kubernetes v1.37.1 linux/amd64", 312, 3000, "packages"),
		at(30, event.StepProgress, "fetching runc", 12<<20, 0, "bytes"),
	}
	var b strings.Builder
	for _, width := range []int{110, 60} {
		s := newLiveTest(t, p, width, 24, Style{Unicode: true})
		for i, e := range events {
			s.emitEvents([]event.Event{e})
			if e.Type == event.StepProgress {
				fmt.Fprintf(&b, "===== %d columns, event %d\n%s", width, i, s.screen)
			}
		}
		s.view.Close()
	}
	var plain strings.Builder
	v := NewPlain(&plain, Options{Plan: p})
	for _, e := range events {
		v.Emit(e)
	}
	golden.Check(t, "testdata/live-build.golden", b.String()+"===== no terminal\n"+plain.String())
}

// TestLive_ShowsStatesBeforeAnOperation: the state of hosts before the operation begins
// is in their lines, and not in the log.
func TestLive_ShowsStatesBeforeAnOperation(t *testing.T) {
	s := newLiveTest(t, nil, 60, 12, Style{})
	note := func(ms int, host, message string) event.Event {
		return event.Event{Type: event.Note, Host: host, Message: message, Time: epoch.Add(time.Duration(ms) * time.Millisecond)}
	}
	s.emitEvents([]event.Event{
		note(0, "w1", "connecting"), note(1, "w2", "connecting"), note(500, "w1", "connected"), note(600, "", "building the bundle"),
	})
	want := `   0.6s  -  building the bundle
preparing  0.6s
  w1  connected
  w2  connecting
`
	if d := cmp.Diff(want, s.screen.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	s.view.Close()
	if d := cmp.Diff("   0.6s  -  building the bundle\n", s.screen.String()); d != "" {
		t.Errorf("closed (-want +got):\n%s", d)
	}
}

func TestLive_RedrawsAfterResize(t *testing.T) {
	p, events := newDemoOperation()
	s := newLiveTest(t, p, 100, 24, Style{})
	s.emitEvents(events[:15])
	s.screen.resize(40)
	s.view.drawFrame()
	s.screen.resize(120)
	s.view.drawFrame()
	got := s.screen.String()
	if n := strings.Count(got, "create cluster prod"); n != 1 {
		t.Errorf("%d head lines after resizing, want 1:\n%s", n, got)
	}
}

func TestLive_ShowsWrittenTextAboveTheBlock(t *testing.T) {
	p, events := newDemoOperation()
	s := newLiveTest(t, p, 60, 24, Style{})
	s.emitEvents(events[:3])
	fmt.Fprint(s.view, "half a ")
	s.view.drawFrame()
	fmt.Fprint(s.view, "line\nand the rest")
	s.view.drawFrame()
	s.view.Close()
	s.view.Close()
	if got := s.screen.String(); !strings.Contains(got, "half a line\nand the rest\n") {
		t.Errorf("written text is broken:\n%s", got)
	}
}

func TestEnding_NamesTheNextCommands(t *testing.T) {
	failure := func(host, title, message string) lifecycle.HostFailure {
		return lifecycle.HostFailure{Host: host, Task: title, Title: title, Failure: event.Failure{Reason: "X", Message: message}}
	}
	result := lifecycle.Result{Operation: "20261120-181502-create-x7k2", Cluster: "prod", Duration: 83 * time.Second, Changed: 87}
	with := func(o event.Outcome, f ...lifecycle.HostFailure) *lifecycle.Result {
		r := result
		r.Outcome, r.Failures = o, f
		return &r
	}
	ready := with(event.Succeeded)
	ready.Ready = []string{
		"Cluster prod is ready: Kubernetes v1.37.1 on 3 nodes",
		"Kubeconfig: /home/ada/.local/share/slipway/clusters/prod/kubeconfig",
	}
	many := with(event.Partial)
	for i := range 300 {
		many.Failures = append(many.Failures, failure(fmt.Sprintf("w%d", i), "install containerd", "no space left"))
	}
	for i := range 12 {
		many.Failures = append(many.Failures, failure(fmt.Sprintf("x%d", i), "join node", fmt.Sprintf("port %d is taken", i)))
	}
	gone := []lifecycle.HostFailure{failure("w1", "connect to host", "no answer"), failure("w2", "connect to host", "no answer")}
	forgotten := with(event.Partial, gone...)
	forgotten.Forgotten = true
	full := failure("w2", "join node", "no space left on /var/lib/kubelet")
	full.Remedy = "free 2 GiB on /var/lib/kubelet"
	listed := failure("", "restart pods", "the old key is still needed")
	listed.Reason = "tokens-held"
	minor, byFile := with(event.Succeeded), with(event.Succeeded)
	minor.Onward, byFile.Onward, byFile.OnwardFile = "v1.37.1", "v1.37.1", "/home/ada/prod.yaml"
	byInput := *byFile
	byInput.OnwardFile = "-"
	var b strings.Builder
	for _, tc := range []struct {
		name string
		e    Ending
	}{
		{"create succeeded", Ending{Result: ready, Kind: operation.Create}},
		{"apply succeeded", Ending{Result: with(event.Succeeded), Kind: operation.Apply, File: "prod.yaml"}},
		{
			"nodes added",
			Ending{Result: &lifecycle.Result{Cluster: "prod", Outcome: event.Succeeded, Nodes: []string{"w3", "w4"}}, Kind: operation.AddNodes},
		},
		{
			"nodes removed",
			Ending{Result: &lifecycle.Result{Cluster: "prod", Outcome: event.Succeeded, Nodes: []string{"w3"}}, Kind: operation.DeleteNodes},
		},
		{"delete succeeded", Ending{Result: with(event.Succeeded), Kind: operation.Delete}},
		{"init-os succeeded", Ending{Result: with(event.Succeeded), Kind: operation.InitOS, File: "prod.yaml"}},
		{"init-registry succeeded", Ending{Result: with(event.Succeeded), Kind: operation.InitRegistry, File: "prod.yaml"}},
		{"init-registry failed", Ending{Result: with(event.Failed), Kind: operation.InitRegistry, File: "prod.yaml"}},
		{"init-os failed", Ending{Result: with(event.Failed), Kind: operation.InitOS, File: "prod.yaml"}},
		{"create failed", Ending{Result: with(event.Failed, full), Kind: operation.Create}},
		{
			"create failed on the manager",
			Ending{Result: with(event.Failed, failure("", "build the bundle", "the Go tool is missing")), Kind: operation.Create},
		},
		{"failed in a way that the guide lists", Ending{Result: with(event.Failed, listed), Kind: operation.RotateCA}},
		{"finished with failed hosts", Ending{Result: many, Kind: operation.Create}},
		{"paused", Ending{Result: with(event.Paused), Kind: operation.Upgrade}},
		{"a minor of an upgrade", Ending{Result: minor, Kind: operation.Upgrade}},
		{"a minor of an upgrade without a file, gone on with by one", Ending{Result: minor, Kind: operation.Upgrade, File: "prod.yaml"}},
		{"a minor of an upgrade by a file", Ending{Result: byFile, Kind: operation.Upgrade}},
		{"a minor of an upgrade by a file that was named here", Ending{Result: byFile, Kind: operation.Upgrade, File: "prod.yaml"}},
		{"a minor of an upgrade by standard input", Ending{Result: &byInput, Kind: operation.Upgrade}},
		{"stopped", Ending{Result: with(event.Cancelled), Kind: operation.Apply}},
		{"rollback succeeded", Ending{Result: with(event.Succeeded), Kind: operation.RollbackCreate}},
		{"rollback failed", Ending{Result: with(event.Failed), Kind: operation.RollbackCreate}},
		{"delete failed", Ending{Result: with(event.Failed), Kind: operation.Delete}},
		{"delete with failed hosts", Ending{Result: with(event.Partial, gone...), Kind: operation.Delete}},
		{"forgotten", Ending{Result: forgotten, Kind: operation.Delete}},
	} {
		fmt.Fprintf(&b, "===== %s\n", tc.name)
		switch tc.e.Result.Outcome {
		case event.Succeeded:
			tc.e.Succeeded(&b)
		case event.Paused:
			tc.e.Paused(&b)
		default:
			tc.e.Failed(&b)
		}
	}
	golden.Check(t, "testdata/endings.golden", b.String())
}

func TestWritePlan_PaintsChanges(t *testing.T) {
	p := &plan.Plan{Cluster: "prod", Operation: "apply", Removes: []string{"host w3"}, Steps: []plan.Step{{
		Module: "os", Task: "os.hosts", Title: "write the hosts file", Host: "w1", State: plan.Change,
		Changes: []plan.OpChange{
			{Kind: op.KindFile, Target: "/etc/x", Summary: "create"},
			{Kind: op.KindBlock, Target: "/etc/hosts#nodes", Summary: "1 line differs", Diff: "@@ -1 +1 @@\n-a\n+b\n"},
			{Kind: op.KindAbsent, Target: "/etc/y"},
		},
	}}}
	var colour, plain strings.Builder
	if err := errors.Join(WritePlan(&colour, p, false, Style{Colour: true}), WritePlan(&plain, p, false, Style{})); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/plan-colour.golden", strings.ReplaceAll(colour.String(), "\x1b", "ESC"))
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("colours where none are wanted")
	}
}

func TestWriteDiagnostics_WritesProblemAndHint(t *testing.T) {
	var b strings.Builder
	WriteDiagnostics(&b, diag.List{
		{ID: "unknown-field", File: "prod.yaml", Line: 3, Column: 5, Path: "spec.hots", Message: "unknown field", Hint: "did you mean hosts?"},
		{ID: "inline-password", Severity: diag.Warning, Host: "w1", Message: "a password stands in the file"},
	}, Style{})
	want := `error: prod.yaml:3:5: spec.hots: unknown field [unknown-field]
    hint: did you mean hosts?
w1: warning: a password stands in the file [inline-password]
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestForeignText_IsEscaped: text from hosts does not control the terminal, and a long
// value is shortened.
func TestForeignText_IsEscaped(t *testing.T) {
	var b strings.Builder
	WriteDiagnostics(&b,
		diag.List{{ID: "x", Host: "w1", Path: "spec[a\nb]", Message: "it says \x1b[2J\r\u009b1m\nand \u202emore", Hint: "one\ttwo\x00"}},
		Style{Unicode: true})
	want := `error: w1: spec[a\nb]: it says \x1b[2J\r\u009b1m` + "\n" + `and \u202emore [x]` + "\n    hint: one\ttwo" + `\x00` + "\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Reset()
	removes := &plan.Plan{Cluster: "prod", Removes: []string{"host \x1b[2Jw1"}}
	if err := WritePlan(&b, removes, false, Style{}); err != nil || !strings.Contains(b.String(), `host \x1b[2Jw1`) {
		t.Errorf("of a plan %q is shown, %v", b.String(), err)
	}
	b.Reset()
	if err := WriteTable(&b, []string{"A", "B"}, [][]string{{"x\ny", "\x1b]0;title\a"}}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("A      B\n"+`x\ny   \x1b]0;title\a`+"\n", b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Reset()
	WriteDiagnostics(&b, diag.List{{Message: "begin " + strings.Repeat("é", 100_000) + " end"}}, Style{Unicode: true})
	if got := b.String(); len(got) > 10_000 || !strings.Contains(got, "begin") || !strings.HasSuffix(got, " end\n") ||
		!strings.Contains(got, "(96010 characters omitted)") {
		t.Errorf("%d bytes are shown: %.20q…", len(got), got)
	}
	if got, want := PrintableLine("  a\x1b[31mb\u202ec\u009b1md\x00é "), "  abc1mdé"; got != want {
		t.Errorf("a line of output is %q, want %q", got, want)
	}
}

func TestWhere_NamesTaskAndHost(t *testing.T) {
	for _, tc := range []struct{ title, host, want string }{
		{"drain node", "w2", "drain node on w2"},
		{"install containerd", "w2", "install containerd on w2"},
		{"build bundle", "", "build bundle"},
	} {
		if got := Where(tc.title, tc.host); got != tc.want {
			t.Errorf("Where(%q, %q) = %q, want %q", tc.title, tc.host, got, tc.want)
		}
	}
}

func TestDuration_IsRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 40 * time.Millisecond: "0.0s", 12345 * time.Millisecond: "12.3s", 59_949 * time.Millisecond: "59.9s",
		59_951 * time.Millisecond: "1m00s", 83 * time.Second: "1m23s", 3599600 * time.Millisecond: "60m00s", 62 * time.Minute: "1h02m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestReadStyle_FollowsTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		reason string
		env    map[string]string
		want   Style
	}{
		{"a usual terminal", map[string]string{"TERM": "xterm", "LANG": "en_GB.UTF-8"}, Style{true, true}},
		{"LC_ALL wins", map[string]string{"TERM": "xterm", "LANG": "en_GB.UTF-8", "LC_ALL": "C"}, Style{true, false}},
		{"no-color.org", map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, Style{}},
		{"a dumb terminal", map[string]string{"TERM": "dumb"}, Style{}},
		{"a terminal that nobody knows", map[string]string{"LANG": "C.UTF-8"}, Style{Unicode: true}},
	} {
		if got := ReadStyle(func(k string) string { return tc.env[k] }); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.reason, got, tc.want)
		}
	}
}
