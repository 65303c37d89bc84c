package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/plan"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
)

// A blankHost is a host on which nothing is as wanted. It shows the content of files in
// diffs, unless the operation is secret.
type blankHost struct {
	name    string
	mu      sync.Mutex
	checked int // operations that were checked
}

var _ remote.Host = (*blankHost)(nil)

func (b *blankHost) Name() string { return b.name }
func (b *blankHost) Close() error { return nil }

func (b *blankHost) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("planning opens no connections")
}

func (b *blankHost) Apply(context.Context, remote.Batch, func(remote.Progress)) ([]op.Result, error) {
	return nil, errors.New("planning changes nothing")
}

func (b *blankHost) Check(_ context.Context, ops op.List) ([]op.Result, error) {
	b.mu.Lock()
	b.checked += len(ops)
	b.mu.Unlock()
	var out []op.Result
	for _, o := range ops {
		r := op.Result{Kind: o.Kind(), Target: o.Target(), Status: op.Changed, Summary: "create"}
		switch o := o.(type) {
		case op.ReadFile, op.UnitStarted, op.Query:
			r.Status, r.Missing = op.Unchanged, true
		case op.BaselineFile, op.RootOnly: // for files that do not exist
			r.Status = op.Unchanged
		case op.FetchBlob:
			if err := checkBlob(o.Blob); err != nil {
				return nil, err
			}
		case op.Unpack:
			if err := checkBlob(o.Blob); err != nil {
				return nil, err
			}
		case op.ImportImages:
			for _, img := range o.Images {
				if err := checkBlob(img.Manifest); err != nil {
					return nil, err
				}
			}
		case op.File:
			if !o.Secret {
				r.Diff = string(o.Content)
			}
		case op.Exec:
			if !o.SecretStdin {
				r.Diff = string(o.Stdin)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// checkBlob is the check of the node helper for every blob, known or not.
func checkBlob(b op.Blob) error {
	hexa, ok := strings.CutPrefix(b.Digest, "sha256:")
	if raw, err := hex.DecodeString(hexa); !ok || err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%q is not a digest of a blob", b.Digest)
	}
	return nil
}

// emptyState is a bundle that is not built yet, and a state without records.
type emptyState struct{}

func (emptyState) Have(context.Context) (module.Content, error) { return nil, nil }
func (emptyState) Make(context.Context, func(event.Event)) (module.Content, error) {
	return nil, errors.New("planning builds no bundle")
}
func (emptyState) Describe() string                                   { return "build" }
func (emptyState) Kubeconfig(context.Context, string) ([]byte, error) { return nil, nil }
func (emptyState) SaveKubeconfig(context.Context, string, []byte) error {
	return errors.New("planning saves nothing")
}

func (emptyState) TakeOff(context.Context, string, string) ([]string, error) {
	return nil, errors.New("planning saves nothing")
}

func testParts() Parts {
	return Parts{Bundle: emptyState{}, State: emptyState{}, Owner: "slipway", PruneBundles: true}
}

func host(name, address string, roles ...v1alpha1.Role) v1alpha1.Host {
	return v1alpha1.Host{Name: name, Address: address, Roles: roles}
}

// plainCluster returns one control plane and two workers.
func plainCluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"}}
	c.Name = "prod"
	c.Spec.Kubernetes.Version = "v1.37.1"
	c.Spec.Hosts = []v1alpha1.Host{
		host("cp1", "192.0.2.11", v1alpha1.RoleControlPlane),
		host("w1", "192.0.2.12", v1alpha1.RoleWorker),
		host("w2", "192.0.2.13", v1alpha1.RoleWorker),
	}
	return c
}

// newEnv completes a cluster like a front end, and rejects an invalid one.
func newEnv(t *testing.T, c *v1alpha1.Cluster) module.Env {
	t.Helper()
	spec.SetDefaults(c, spec.DefaultOptions{})
	if err := spec.Validate(c, spec.ValidateOptions{}).Err(); err != nil {
		t.Fatalf("the cluster is not valid: %v", err)
	}
	catalogue, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := catalogue.ResolveVersion(c.Spec.Kubernetes.Version)
	if err != nil {
		t.Fatal(err)
	}
	env := module.Env{Cluster: c, Release: r}
	if _, ok := spec.RegistryHost(c); ok {
		env.Registry = &module.Registry{
			Password: secret.New("parrot"), Made: true, Hash: "$2a$05$hash",
			CA: []byte("authority\n"), CAKey: []byte("key\n"),
		}
	}
	return env
}

func blankHosts(env module.Env) []*engine.Host {
	var out []*engine.Host
	for _, h := range env.Cluster.Spec.Hosts {
		out = append(out, &engine.Host{
			Host: h, Conn: &blankHost{name: h.Name},
			Facts: &op.HostFacts{
				Arch: "amd64", MachineID: "id-" + h.Name, CgroupVersion: 2, ResourceCapability: true,
				KernelFeatures: []string{"overlay", "br_netfilter", "nf_tables"},
			},
		})
	}
	return out
}

// planSteps plans a pipeline over hosts and returns the steps.
func planSteps(t *testing.T, p engine.Pipeline, on []*engine.Host) []plan.Step {
	t.Helper()
	res, err := (&engine.Run{Hosts: on, Cluster: "prod"}).Check(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range res.Failures {
		t.Errorf("checking %s on %s: %s", f.Task, f.Host, f.Message)
	}
	return res.Steps
}

// operationLists plans a pipeline and returns the operations of each task on each host,
// by "task on host".
func operationLists(t *testing.T, p engine.Pipeline, on []*engine.Host) map[string]op.List {
	t.Helper()
	var mu sync.Mutex
	out := map[string]op.List{}
	eachTask(p, func(task *engine.Task) {
		wanted := task.Ops
		if wanted == nil {
			return
		}
		task.Ops = func(s *engine.Scope) (op.List, error) {
			list, err := wanted(s)
			mu.Lock()
			defer mu.Unlock()
			out[task.ID+" on "+s.Host().Name] = list
			return list, err
		}
	})
	planSteps(t, p, on)
	return out
}

// printPipeline plans a pipeline and prints the operations of each task: values of
// other tasks are placeholders. If the operations of hosts are similar, it prints the
// difference to the first host.
func printPipeline(t *testing.T, p engine.Pipeline, on []*engine.Host) string {
	t.Helper()
	var mu sync.Mutex
	said := map[string]map[string][]string{} // task → operations → hosts
	eachTask(p, func(task *engine.Task) {
		wanted := task.Ops
		if wanted == nil {
			return
		}
		task.Ops = func(s *engine.Scope) (op.List, error) {
			list, err := wanted(s)
			mu.Lock()
			defer mu.Unlock()
			if said[task.ID] == nil {
				said[task.ID] = map[string][]string{}
			}
			text := printOperations(t, list)
			said[task.ID][text] = append(said[task.ID][text], s.Host().Name)
			return list, err
		}
	})
	planSteps(t, p, on)
	var b strings.Builder
	eachTask(p, func(task *engine.Task) {
		if task.Run != nil {
			fmt.Fprintf(&b, "== %s: %s (on the manager)\n", task.ID, task.Title)
			return
		}
		groups, first := said[task.ID], ""
		if len(groups) == 0 {
			fmt.Fprintf(&b, "== %s: %s (nowhere)\n", task.ID, task.Title)
		}
		for _, text := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
			return strings.Compare(slices.Min(groups[a]), slices.Min(groups[b]))
		}) {
			slices.Sort(groups[text])
			fmt.Fprintf(&b, "== %s: %s on %s", task.ID, task.Title, strings.Join(groups[text], ", "))
			if change := difference(t, first, text); strings.Count(change, "\n") <= strings.Count(text, "\n")/2 && first != "" {
				fmt.Fprintf(&b, " (difference to %s)\n%s", groups[first][0], change)
				continue
			}
			b.WriteString("\n" + text)
			if first == "" {
				first = text
			}
		}
	})
	return b.String()
}

func eachTask(p engine.Pipeline, fn func(*engine.Task)) {
	for mi := range p.Modules {
		for ti := range p.Modules[mi].Tasks {
			fn(&p.Modules[mi].Tasks[ti])
		}
	}
}

// printOperations prints a list: kind and target, fields, and content as it would be on the
// host.
func printOperations(t *testing.T, list op.List) string {
	t.Helper()
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintf(&b, "- %s %s\n", o.Kind(), o.Target())
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		var content []byte
		switch o := o.(type) {
		case op.File:
			content = o.Content
			delete(fields, "path")
		case op.Exec:
			content = o.Stdin
			delete(fields, "name")
		}
		delete(fields, "content")
		delete(fields, "stdin")
		if len(fields) > 0 {
			text, err := yaml.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			indent(&b, "    ", text)
		}
		if !utf8.Valid(content) {
			t.Fatalf("%s %s: the content is not UTF-8 text", o.Kind(), o.Target())
		}
		indent(&b, "    | ", content)
	}
	return b.String()
}

func indent(b *strings.Builder, with string, text []byte) {
	for line := range bytes.Lines(text) {
		b.WriteString(strings.TrimRight(with+string(line), "\n ") + "\n")
	}
}
