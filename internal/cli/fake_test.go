package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/access"
	"slipway.dev/slipway/internal/lifecycle/move"
	kinds "slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/live"
)

var epoch = time.Date(2026, 11, 20, 18, 15, 2, 0, time.UTC)

const operationID = "20261120-181502-create-x7k2"

// fake is a Service that follows a scenario. It refuses every call that the
// scenario does not expect.
type fake struct {
	// Prepare is the result of Prepare, PrepareSaved…: a plan ("create", "empty",
	// "removal") or an error ("refused", "locked", "locked-elsewhere", "stale",
	// "broken").
	Prepare string `json:"prepare"`
	// Onward holds the remaining versions of an upgrade, one for each minor version.
	// Between is the result of Prepare after the first of them has succeeded.
	Onward  []string `json:"onward"`
	Between string   `json:"between"`
	// Apply is an outcome, or "locked", "broken", "until-cancelled" or
	// "forever".
	Apply     string   `json:"apply"`
	Clusters  []string `json:"clusters"`
	Damaged   []string `json:"damaged"` // clusters whose records cannot be read
	Phase     string   `json:"phase"`
	Precheck  string   `json:"precheck"`  // clean, warnings, errors
	Cancel    string   `json:"cancel"`    // ok, not-running
	History   string   `json:"history"`   // how the one operation ended; "killed"
	Kubectl   int      `json:"kubectl"`   // exit code, plus 1: 0 is not expected
	Exit      int      `json:"exit"`      // of programs on hosts
	Describe  string   `json:"describe"`  // ok, unreadable
	Certs     string   `json:"certs"`     // how certificates are: a verdict
	Calls     string   `json:"calls"`     // a file that calls are written to
	Leaves    []string `json:"leaves"`    // hosts that a plan removes
	Lost      string   `json:"lost"`      // a host that a plan has to do without
	Gone      bool     `json:"gone"`      // a delete that forgets
	Lacks     bool     `json:"lacks"`     // a cluster without the named hosts
	Unsavable bool     `json:"unsavable"` // a plan that would lack passwords
	// Forgets makes a delete remove the clusters from the state.
	Forgets bool `json:"forgets"`
	// Admin replaces the valid admin kubeconfig in the state.
	Admin *string `json:"admin"`
	// Writes lists files that Apply creates.
	Writes []string `json:"writes"`

	applying chan<- struct{} // receives when Apply waits
	applied  chan<- struct{} // closed when Apply has sent all events
}

// call records a method call.
type call struct {
	Method       string   `json:"method"`
	Kind         string   `json:"kind,omitempty"`
	Name         string   `json:"name,omitempty"`
	Hosts        []string `json:"hosts,omitempty"`
	Kubernetes   string   `json:"kubernetes,omitempty"`
	Bundle       string   `json:"bundle,omitempty"`
	IgnoreChecks []string `json:"ignoreChecks,omitempty"`
	IgnoreErrors bool     `json:"ignoreErrors,omitempty"`
	BreakLock    bool     `json:"breakLock,omitempty"`
	TakeOver     bool     `json:"takeOver,omitempty"`
	Forget       bool     `json:"forget,omitempty"`
	Force        bool     `json:"force,omitempty"`
	Nodes        []string `json:"nodes,omitempty"` // to remove or to reboot
	Adds         []string `json:"adds,omitempty"`  // hosts of the command line
	HasSource    bool     `json:"hasSource,omitempty"`
	File         string   `json:"file,omitempty"`
	Args         []string `json:"args,omitempty"`
	Version      string   `json:"version,omitempty"`
	Follows      bool     `json:"follows,omitempty"`
}

func (f *fake) recordCall(c call) error {
	if f.Calls == "" {
		return nil
	}
	out, err := os.OpenFile(f.Calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(out).Encode(c), out.Close())
}

// newCall returns the record of a call with a request.
func newCall(method string, r lifecycle.Request) call {
	c := call{Method: method, Kind: string(r.Kind())}
	switch r := r.(type) {
	case lifecycle.CreateRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
	case lifecycle.ApplyRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
		c.Forget, c.Force = r.Forget, r.Removal.Force
	case lifecycle.DeleteRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
		c.Forget = r.Forget
	case lifecycle.InitOSRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
	case lifecycle.InitRegistryRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
	case lifecycle.AddNodesRequest:
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
		c.setHosts(r.Hosts)
	case lifecycle.DeleteNodesRequest:
		c.Name, c.Nodes, c.Forget, c.Force = r.Name, r.Nodes, r.Forget, r.Removal.Force
		c.setOptions(r.Options)
		c.setHosts(r.Hosts)
	case lifecycle.UpgradeRequest:
		c.Bundle, c.Version, c.Follows, c.Force = r.Bundle, r.Version, r.Follows, r.Removal.Force
		c.setSubject(r.Subject)
		c.setOptions(r.Options)
	case lifecycle.RenewCertsRequest:
		c.Name, c.Args = r.Name, r.Names
		if r.All {
			c.Args = []string{"--all"}
		} else if r.Within > 0 {
			c.Args = []string{"--within", r.Within.String()}
		}
		c.setOptions(r.Options)
	case lifecycle.RotateCARequest:
		c.Name, c.Args = r.Name, r.Names
		c.setOptions(r.Options)
	case lifecycle.DefragEtcdRequest:
		c.Name = r.Name
		c.setOptions(r.Options)
	case lifecycle.RestoreEtcdRequest:
		c.Name, c.Args = r.Name, []string{r.Backup, r.Identity}
		c.setOptions(r.Options)
	case lifecycle.RescueEtcdRequest:
		c.Name, c.Nodes = r.Name, r.Lost
		c.setOptions(r.Options)
	case lifecycle.RebootNodesRequest:
		c.Name, c.Nodes, c.Force, c.Args = r.Name, r.Nodes, r.Removal.Force, []string{r.MaxUnavailable, r.Removal.DrainTimeout.String()}
		c.setOptions(r.Options)
	}
	return c
}

func (c *call) setSubject(s lifecycle.Subject) {
	c.Name, c.HasSource, c.File = s.Name, len(s.Source) > 0, s.File
	if s.Cluster == nil {
		return
	}
	c.Name, c.Kubernetes, c.Bundle = s.Cluster.Name, s.Cluster.Spec.Kubernetes.Version, s.Cluster.Spec.Bundle
	for _, h := range s.Cluster.Spec.Hosts {
		c.Hosts = append(c.Hosts, fmt.Sprintf("%s=%s %v", h.Name, h.Address, h.Roles))
	}
}

func (c *call) setOptions(o lifecycle.Options) {
	c.IgnoreChecks, c.IgnoreErrors, c.BreakLock, c.TakeOver = o.IgnoreChecks, o.IgnoreErrors, o.BreakLock, o.TakeOver
}

func (c *call) setHosts(hosts []spec.HostFlag) {
	for _, h := range hosts {
		c.Adds = append(c.Adds, fmt.Sprintf("%s@%s:%d=%v %s", h.User, h.Address, h.Port, h.Roles, h.Name))
	}
}

func newUnexpectedError(method string) error {
	return fmt.Errorf("the scenario does not expect %s", method)
}

func (f *fake) newPrepared(name string, kind kinds.Kind, progress event.Sink) (lifecycle.Prepared, error) {
	progress.Emit(event.Event{Type: event.Note, Message: "connecting to 2 hosts"})
	p := &plan.Plan{Cluster: name, Operation: string(kind), SpecDigest: "sha256:s", FactsDigest: "sha256:f", Spec: []byte("{}")}
	step := plan.Step{Module: "kubeadm", Task: "kubeadm.join", Title: "join node", Host: "w1", State: plan.Change}
	step.Changes = []plan.OpChange{{Kind: op.KindExec, Target: "kubeadm-join", Summary: "run"}}
	switch f.Prepare {
	case "create":
		p.Steps = []plan.Step{step}
	case "removal":
		p.Steps = []plan.Step{step}
		p.Removes = []string{"host w1 (node and data)"}
	case "empty":
	case "refused":
		return nil, diag.List{{ID: "host-unreachable", Host: "w1", Message: "no answer on port 22", Hint: "is it up?"}}
	case "locked":
		return nil, &lifecycle.LockedError{Cluster: name, Operation: operationID, Holder: "process 7 on mgr"}
	case "locked-elsewhere":
		return nil, &lifecycle.LockedError{
			Cluster: name, Operation: operationID,
			Holder: "process 7 on mgr2 since 2026-11-22 14:05:03 UTC, last heard of 3 s ago", Elsewhere: true,
		}
	case "stale":
		return nil, &lifecycle.StaleError{Difference: "-a\n+b\n"}
	case "interrupted":
		return nil, &interruptError{os.Interrupt}
	case "broken":
		return nil, errors.New("the disk is on fire")
	default:
		return nil, newUnexpectedError("prepare")
	}
	return &fakePrepared{fake: f, plan: p}, p.Seal()
}

func (f *fake) PrepareSaved(_ context.Context, p *plan.Plan, _ lifecycle.ApplyOptions, progress event.Sink) (lifecycle.Prepared, error) {
	if err := f.recordCall(call{Method: "PrepareSaved", Name: p.Cluster, Kind: p.Operation}); err != nil {
		return nil, err
	}
	return f.newPrepared(p.Cluster, kinds.Kind(p.Operation), progress)
}

// service adds methods to fake that have the same names as its fields.
type service struct{ *fake }

var _ Service = service{}

func (s service) Move(_ context.Context, name string, _ move.Target, _ event.Sink) error {
	return s.recordCall(call{Method: "Move", Name: name})
}

func (s service) Prepare(_ context.Context, r lifecycle.Request, progress event.Sink) (lifecycle.Prepared, error) {
	c := newCall("Prepare", r)
	if err := s.recordCall(c); err != nil {
		return nil, err
	}
	return s.newPrepared(c.Name, r.Kind(), progress)
}

func (s service) PrepareResume(_ context.Context, r lifecycle.ResumeRequest, progress event.Sink) (lifecycle.Prepared, error) {
	c := call{Method: "PrepareResume", Force: r.Removal.Force}
	c.setSubject(r.Subject)
	c.setOptions(r.Options)
	if err := s.recordCall(c); err != nil {
		return nil, err
	}
	return s.newPrepared(r.Name, kinds.Create, progress)
}

func (s service) PrepareRollback(_ context.Context, r lifecycle.RollbackRequest, progress event.Sink) (lifecycle.Prepared, error) {
	c := call{Method: "PrepareRollback", Name: r.Name, Force: r.Removal.Force}
	c.setOptions(r.Options)
	if err := s.recordCall(c); err != nil {
		return nil, err
	}
	return s.newPrepared(r.Name, kinds.RollbackCreate, progress)
}

func (s service) Precheck(_ context.Context, r lifecycle.Request, _ event.Sink) (diag.List, error) {
	if err := s.recordCall(newCall("Precheck", r)); err != nil {
		return nil, err
	}
	warning := diag.Diagnostic{ID: "few-cpus", Severity: diag.Warning, Host: "w1", Message: "one CPU"}
	problem := diag.Diagnostic{ID: "swap-on", Severity: diag.Error, Host: "w2", Message: "swap is on", Hint: "turn it off"}
	switch s.fake.Precheck {
	case "clean":
		return nil, nil
	case "warnings":
		return diag.List{warning}, nil
	case "errors":
		return diag.List{warning, problem}, nil
	}
	return nil, newUnexpectedError("Precheck")
}

func (s service) Cancel(_ context.Context, name string, progress event.Sink) error {
	switch s.fake.Cancel {
	case "ok":
		progress.Emit(event.Event{Type: event.Note, Message: "stopping its operation"})
		return s.recordCall(call{Method: "Cancel", Name: name})
	case "not-running":
		return diag.List{{ID: "nothing-running", Message: "nothing runs on cluster " + name}}
	}
	return newUnexpectedError("Cancel")
}

func (s service) operation() *v1alpha1.Operation {
	start, end := metav1.NewTime(epoch), metav1.NewTime(epoch.Add(31*time.Second))
	o := &v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{Name: operationID, CreationTimestamp: start},
		Spec:       v1alpha1.OperationSpec{ClusterRef: v1alpha1.ClusterReference{Name: "prod"}, Kind: "create"},
		Status: v1alpha1.OperationStatus{
			State: v1alpha1.OperationSucceeded, StartTime: &start, EndTime: &end,
			Steps: []v1alpha1.OperationStep{{
				Task: "kubeadm.join", Title: "join node", StartTime: &start,
				EndTime: &end, Hosts: v1alpha1.HostCounts{Changed: 1, Failed: 1, Total: 2},
			}},
			OtherSteps: &v1alpha1.OtherSteps{Count: 3, Hosts: v1alpha1.HostCounts{Done: 2, Ignored: 4, Total: 6}},
			HostCounts: v1alpha1.HostCounts{Changed: 1, Failed: 1, Total: 2},
		},
	}
	switch s.History {
	case "failed":
		o.Status.State, o.Status.Message = v1alpha1.OperationFailed, "join node: w2: no space left"
		o.Status.Reason, o.Status.ErrorCode = "DiskFull", v1alpha1.ErrorCapacity
	case "hostile":
		o.Status.State, o.Status.Message = v1alpha1.OperationFailed, "join node: w2: \x1b]52;c;Y3VybA==\x07\x1b[2J\u009b2J"
	case "killed":
		o.Status.State, o.Status.EndTime = v1alpha1.OperationRunning, nil
	}
	return o
}

func (s service) Clusters(context.Context) ([]savedstate.ClusterSummary, error) {
	var out []savedstate.ClusterSummary
	for _, name := range s.fake.Clusters {
		out = append(out, savedstate.ClusterSummary{
			Name: name, Phase: v1alpha1.Phase(s.Phase), Kubernetes: "v1.37.1", Hosts: 2, Operation: s.operation(), Created: epoch,
		})
	}
	for _, name := range s.fake.Damaged {
		out = append(out, savedstate.ClusterSummary{Name: name, Problem: &newDamage(name)[0]})
	}
	return out, nil
}

func newDamage(name string) diag.List {
	return diag.List{{ID: "record-damaged", Severity: diag.Error, Message: name + "/cluster.json is damaged", Hint: "put it back"}}
}

func (s service) Cluster(_ context.Context, name string) (*v1alpha1.Cluster, error) {
	if slices.Contains(s.fake.Damaged, name) {
		return nil, newDamage(name)
	}
	for _, n := range s.fake.Clusters {
		if n == name {
			c := &v1alpha1.Cluster{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"},
				ObjectMeta: metav1.ObjectMeta{Name: name},
			}
			c.Spec.SSH.Password = "canary-password"
			c.Spec.Kubernetes.Version = "v1.37.1"
			c.Spec.Hosts = []v1alpha1.Host{
				{Name: "cp1", Address: "10.0.0.11", Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}},
				{Name: "w1", Address: "10.0.0.12", Roles: []v1alpha1.Role{v1alpha1.RoleWorker}},
			}
			c.Status = v1alpha1.ClusterStatus{
				Phase: v1alpha1.Phase(s.Phase), Version: "v1.37.1", Operation: operationID,
				Nodes: []v1alpha1.NodeStatus{{Name: "cp1", InternalIP: "10.0.0.11", Version: "v1.37.1", Ready: true}},
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("cluster %s: %w", name, savedstate.ErrNotFound)
}

func (s service) Operations(_ context.Context, cluster string) ([]v1alpha1.Operation, error) {
	if s.History == "" || (cluster != "" && cluster != "prod") {
		return nil, nil
	}
	return []v1alpha1.Operation{*s.operation()}, nil
}

func (s service) Operation(_ context.Context, id string) (*v1alpha1.Operation, error) {
	if s.History == "" || !strings.HasPrefix(operationID, id) {
		return nil, fmt.Errorf("operation %s: %w", id, savedstate.ErrNotFound)
	}
	return s.operation(), nil
}

func (s service) Events(ctx context.Context, id string, follow bool, fn func(event.Event) error) error {
	if _, err := s.Operation(ctx, id); err != nil {
		return err
	}
	at := func(sec int, typ event.Type, host string, o event.Outcome) event.Event {
		return event.Event{
			Time: epoch.Add(time.Duration(sec) * time.Second), Type: typ, Operation: operationID,
			Cluster: "prod", Module: "kubeadm", Task: "kubeadm.join", Title: "join node", Host: host, Outcome: o,
		}
	}
	output := at(3, event.StepOutput, "w2", "")
	output.Message = "[preflight] checking\n\x1b[31mwriting kubelet.conf\x1b[0m\n"
	events := []event.Event{
		{Time: epoch, Type: event.OperationStarted, Kind: "create", Cluster: "prod"},
		at(1, event.StepStarted, "w1", ""), at(1, event.StepStarted, "w2", ""), output, at(9, event.StepFinished, "w1", event.Changed),
	}
	switch s.History {
	case "succeeded":
		events = append(events, at(30, event.StepFinished, "w2", event.Changed))
	case "failed":
		f := at(30, event.StepFinished, "w2", event.Failed)
		f.Failure = &event.Failure{Reason: "DiskFull", Message: "no space left", Remedy: "free 2 GiB"}
		events = append(events, f)
	}
	if s.History != "killed" {
		events = append(events, event.Event{Time: epoch.Add(31 * time.Second), Type: event.OperationFinished, Outcome: event.Outcome(s.History)})
	}
	for _, e := range events {
		if err := fn(e); err != nil {
			return err
		}
	}
	if follow && s.History == "killed" {
		return fmt.Errorf("following: %w", records.ErrNoEnd)
	}
	return nil
}

const adminConfig = `apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: https://10.0.0.11:6443
    certificate-authority-data: Q0E=
users:
- name: kubernetes-admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
contexts:
- name: kubernetes-admin@kubernetes
  context:
    cluster: kubernetes
    user: kubernetes-admin
current-context: kubernetes-admin@kubernetes
`

// mergedFile returns the file with the paths of merged kubeconfigs in scripts; ""
// outside of scripts.
func (s service) mergedFile() string {
	if dir := os.Getenv("SLIPWAY_HOME"); dir != "" {
		return filepath.Join(dir, "merged")
	}
	return ""
}

func (s service) AddMerged(_, path string) error {
	if s.mergedFile() == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.mergedFile()), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(s.mergedFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(path + "\n")
	return errors.Join(err, f.Close())
}

func (s service) Merged(string) ([]string, error) {
	text, err := os.ReadFile(s.mergedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

func (s service) Kubeconfig(ctx context.Context, name string, live bool) ([]byte, diag.List, error) {
	if _, err := s.Cluster(ctx, name); err != nil {
		return nil, nil, err
	}
	if live {
		return []byte("# live\n" + adminConfig), nil, nil
	}
	if s.fake.Admin != nil {
		return []byte(*s.fake.Admin), nil, nil
	}
	return []byte(adminConfig), nil, nil
}

func (s service) Describe(_ context.Context, conf []byte, o live.Options) (*live.Description, error) {
	switch s.fake.Describe {
	case "ok":
		warning := diag.Diagnostic{ID: "not-as-it-is", Severity: diag.Warning, Path: "spec.network.plugin", Message: "the network is calico's"}
		err := s.recordCall(call{Method: "Describe", Name: o.Name, Args: []string{o.User, o.PrivateKeyFile, string(conf)}})
		return &live.Description{Text: []byte("kind: Cluster\n"), Warnings: diag.List{warning}}, err
	case "unreadable":
		return nil, diag.List{{ID: "cluster-unreadable", Severity: diag.Error, Message: "nothing listens for the API"}}
	}
	return nil, newUnexpectedError("Describe")
}

func (s service) Manifest(_ context.Context, r access.ManifestRequest) ([]byte, diag.List, error) {
	if s.fake.Describe == "" {
		return nil, nil, newUnexpectedError("Manifest")
	}
	err := s.recordCall(call{
		Method: "Manifest", Kubernetes: r.Kubernetes,
		Args: append(slices.Concat(r.Arches, r.Images), string(r.Kubeconfig)),
	})
	return []byte("kind: BundleManifest\n"), diag.List{{ID: "image-left-out", Severity: diag.Warning, Message: "image x is left out"}}, err
}

func (s service) Kubectl(ctx context.Context, name string, args []string, _ io.Reader, out, _ io.Writer) (int, error) {
	if s.applying != nil {
		s.applying <- struct{}{}
		<-ctx.Done()
		return -1, nil // as of a program that a signal has ended
	}
	if s.fake.Kubectl == 0 {
		return 0, newUnexpectedError("Kubectl")
	}
	fmt.Fprintf(out, "kubectl on %s: %q\n", name, args)
	return s.fake.Kubectl - 1, nil
}

type fakePrepared struct {
	*fake
	plan   *plan.Plan
	closed bool
}

func (p *fakePrepared) Plan() *plan.Plan { return p.plan }
func (p *fakePrepared) Findings() diag.List {
	return diag.List{{ID: "few-cpus", Severity: diag.Warning, Host: "w1", Message: "one CPU"}}
}

func (p *fakePrepared) Leaving() []string { return p.Leaves }

func (p *fakePrepared) Failures() []lifecycle.HostFailure {
	if p.Lost == "" {
		return nil
	}
	return []lifecycle.HostFailure{{Host: p.Lost, Task: "connect", Title: "connecting", Failure: event.Failure{Message: "no answer"}}}
}

func (p *fakePrepared) Savable() error {
	if p.Unsavable {
		return diag.List{{ID: "plan-without-password", Message: "the passwords are in no plan", Hint: "passwordFrom"}}
	}
	return nil
}

func (p *fakePrepared) Close() error {
	p.closed = true
	return nil
}

func (p *fakePrepared) Apply(ctx context.Context, sinks ...event.Sink) (*lifecycle.Result, error) {
	if err := p.recordCall(call{Method: "Apply", Kind: p.plan.Operation, Name: p.plan.Cluster}); err != nil {
		return nil, err
	}
	res := &lifecycle.Result{
		Operation: operationID, Cluster: p.plan.Cluster, Outcome: event.Outcome(p.fake.Apply),
		Duration: 83 * time.Second, Changed: 12,
	}
	step := event.Event{
		Time: epoch, Type: event.StepStarted, Operation: operationID, Cluster: p.plan.Cluster,
		Module: "kubeadm", Task: "kubeadm.join", Title: "join node", Host: "w1",
	}
	emit := func(e event.Event) {
		for _, s := range sinks {
			s.Emit(e)
		}
	}
	emit(event.Event{Time: epoch, Type: event.OperationStarted, Operation: operationID, Cluster: p.plan.Cluster, Kind: p.plan.Operation})
	emit(step)
	end := step
	end.Type, end.Time, end.Outcome = event.StepFinished, epoch.Add(12*time.Second), event.Changed
	for _, path := range p.Writes {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			return nil, err
		}
	}
	switch p.fake.Apply {
	case "succeeded":
		if p.plan.IsEmpty() {
			return &lifecycle.Result{Cluster: p.plan.Cluster, Outcome: event.Succeeded}, nil
		}
		if p.Forgets {
			p.Clusters = nil
		}
		res.Ready = []string{"Cluster " + p.plan.Cluster + " is ready"}
		if len(p.Onward) > 0 {
			res.Onward, res.Reached = p.Onward[0], "v1.36.4"
			p.Onward, p.fake.Prepare = p.Onward[1:], p.Between
		}
	case "failed", "partial":
		end.Outcome = event.Failed
		end.Failure = &event.Failure{Reason: "DiskFull", Message: "no space left", Remedy: "free 2 GiB"}
		res.Forgotten = p.Gone
		res.Failures = []lifecycle.HostFailure{{Host: "w1", Task: end.Task, Title: end.Title, Failure: *end.Failure}}
	case "until-cancelled", "forever":
		p.applying <- struct{}{}
		<-ctx.Done()
		p.applying <- struct{}{}
		if p.fake.Apply == "forever" {
			select {} // a step that must not be interrupted
		}
		res.Outcome, end.Outcome = event.Cancelled, event.Cancelled
	case "locked":
		return nil, &lifecycle.LockedError{Cluster: p.plan.Cluster, Operation: operationID, Holder: "process 7 on mgr"}
	case "broken":
		return nil, errors.New("the disk is on fire")
	default:
		return nil, newUnexpectedError("Apply")
	}
	emit(end)
	if p.applied != nil {
		close(p.applied)
	}
	return res, nil
}
