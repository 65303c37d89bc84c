package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/testutil/golden"
)

func samplePlan() *Plan {
	p := &Plan{
		Cluster: "prod", Operation: "create",
		SpecDigest: "sha256:s", BundleDigest: "sha256:b", FactsDigest: "sha256:f",
		Bundle: &BundleNote{Kubernetes: "v1.37.1", Source: "modules", SizeBytes: 327_680_000, Compile: true},
		Spec:   []byte("{}"),
	}
	hosts := []string{"cp1", "w1", "w2"}
	// The steps of one host together, as an engine may plan them.
	for _, h := range hosts {
		changes := []OpChange{{Kind: op.KindSysctl, Target: "/etc/sysctl.d/90-slipway.conf", Summary: "create"}}
		if h == "w2" {
			changes = append(changes, OpChange{
				Kind: op.KindBlock, Target: "/etc/hosts#nodes", Summary: "2 lines differ",
				Diff: "--- /etc/hosts\n+++ /etc/hosts\n@@ -1,1 +1,2 @@\n-10.0.0.9 w1\n+10.0.0.2 w1\n+10.0.0.3 w2\n",
			})
		}
		p.Steps = append(p.Steps,
			Step{Module: "os", Task: "os.kernel", Title: "configure kernel", Host: h, State: Change, Changes: changes},
			Step{Module: "runtime", Task: "runtime.containerd", Title: "install containerd", Host: h, State: Change, Changes: []OpChange{
				{Kind: op.KindUnpack, Target: "/usr/local/bin@sha256:" + strings.Repeat("0123456789abcdef", 4)},
				{Kind: op.KindFile, Target: "/etc/containerd/config.toml", Summary: "create", Diff: "+version = 3\n"},
				{Kind: op.KindAbsent, Target: "/etc/cni/net.d/old.conf"},
			}})
	}
	p.Steps = append(p.Steps,
		Step{
			Module: "kubeadm", Task: "kubeadm.token", Title: "create join token", State: Change,
			Changes: []OpChange{{Kind: "object", Target: "Secret kube-system/bootstrap-token", Summary: "create"}},
		})
	for _, h := range hosts[1:] {
		p.Steps = append(p.Steps, Step{
			Module: "kubeadm", Task: "kubeadm.join", Title: "join node", Host: h, State: Pending, After: "kubeadm.token",
			Changes: []OpChange{{Kind: op.KindExec, Target: "kubeadm-join", Summary: "run"}},
		})
	}
	p.Steps = append(p.Steps, Step{
		Module: "hooks", Task: "hooks.post-install.check", Title: "run hook check", Host: "cp1", State: Uncheckable,
		Changes: []OpChange{{Kind: op.KindExec, Target: "hook-check", Summary: "not checkable: always runs"}},
	})
	p.Removes = []string{"host w3 (node and data)"}
	return p
}

func sealPlan(t *testing.T, p *Plan) *Plan {
	t.Helper()
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestText_MatchesGolden(t *testing.T) {
	var full, brief bytes.Buffer
	p := sealPlan(t, samplePlan())
	if err := errors.Join(p.WriteText(&full), p.WriteBrief(&brief)); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/text.golden", full.Bytes())
	golden.Check(t, "testdata/brief.golden", brief.Bytes())
}

// A plan of an upgrade says until when it can be rolled back.
func TestText_NamesTheEndOfRollback(t *testing.T) {
	for operation, want := range map[string]bool{"upgrade": true, "apply": false} {
		p := &Plan{Operation: operation, Cluster: "prod", Steps: []Step{{Module: "os", Task: "os.hosts", Title: "write hosts file", Host: "cp1"}}}
		var b strings.Builder
		if err := p.WriteBrief(&b); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "until the upgrade completes") &&
			strings.Contains(b.String(), "'slipway rollback prod'"); got != want {
			t.Errorf("%s: it is said: %t\n%s", operation, got, b.String())
		}
	}
}

func TestText_FoldsManyHosts(t *testing.T) {
	p := &Plan{Cluster: "prod", Operation: "apply"}
	for i := range 300 {
		p.Steps = append(p.Steps,
			Step{
				Module: "os", Task: "os.swap", Title: "turn off swap", Host: fmt.Sprintf("w%03d", i), State: Change,
				Changes: []OpChange{{Kind: op.KindSwapOff, Target: "swap"}},
			})
	}
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `Plan to change cluster prod

os
  turn off swap on w000, w001, w002, w003, w004, w005 and 294 more
    ~ swap-off swap

1 task on 300 hosts: 300 to change
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestText_OfAnEmptyPlan(t *testing.T) {
	for _, tc := range []struct {
		name, reason, want string
		plan               Plan
	}{
		{"nothing", "an unchanged cluster", "Cluster prod is up to date: nothing to do.\n", Plan{}},
		{
			"no step", "what is lost is told, though no host has anything to do",
			"Plan to delete cluster prod\n\nThis removes:\n  - the record\n",
			Plan{Operation: "delete", Removes: []string{"the record"}},
		},
	} {
		var b strings.Builder
		tc.plan.Cluster = "prod"
		if err := tc.plan.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, b.String()); d != "" || tc.plan.IsEmpty() != (len(tc.plan.Removes) == 0) {
			t.Errorf("%s: %s; empty: %t (-want +got):\n%s", tc.name, tc.reason, tc.plan.IsEmpty(), d)
		}
	}
}

func TestMark_ReturnsTheEffect(t *testing.T) {
	for _, tc := range []struct {
		change OpChange
		want   Mark
	}{
		{OpChange{Kind: op.KindFile, Summary: "create"}, Creates},
		{OpChange{Kind: op.KindFile, Summary: "content differs"}, Alters},
		{OpChange{Kind: op.KindAbsent, Summary: ""}, Removes},
		{OpChange{Kind: op.KindRestoreHost}, Removes},
		{OpChange{Kind: "object", Summary: "delete Node w2"}, Removes},
		{OpChange{Kind: op.KindImportImages, Summary: "9 of 11 missing"}, Creates},
		{OpChange{Kind: op.KindUnit, Summary: "restart: config.toml changed"}, Alters},
	} {
		if got := tc.change.Mark(); got != tc.want {
			t.Errorf("%+v: mark %c, want %c", tc.change, got, tc.want)
		}
	}
}

func TestSeal_IsDeterministic(t *testing.T) {
	a, b := sealPlan(t, samplePlan()), sealPlan(t, samplePlan())
	first, err1 := a.Encode()
	second, err2 := b.Encode()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two encodings of the same plan differ")
	}
	if again := sealPlan(t, a).Digest; again != b.Digest {
		t.Errorf("sealing again: %s, want %s", again, b.Digest)
	}
	b.Spec = []byte("{ }")
	if sealPlan(t, b).Digest == a.Digest {
		t.Error("the digest does not cover the spec")
	}
	golden.Check(t, "testdata/plan.json", first)
}

func TestDecode_RejectsChangedPlans(t *testing.T) {
	good, err := sealPlan(t, samplePlan()).Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(good)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sealPlan(t, samplePlan()), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	empty, err := sealPlan(t, &Plan{Cluster: "prod", Operation: "apply"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(empty); err != nil {
		t.Errorf("an empty plan: %v", err)
	}
	swap := func(from, to string) []byte {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("%q is not in the plan", from)
		}
		return bytes.Replace(good, []byte(from), []byte(to), 1)
	}
	for _, tc := range []struct {
		name, reason string
		data         []byte
		want         error // nil: any
	}{
		{"a host", "it would be done elsewhere", swap(`"host": "w1"`, `"host": "w9"`), ErrDigest},
		{"the spec", "it would be another cluster", swap(`"spec": "e30="`, `"spec": "e30K"`), ErrDigest},
		{"no digest", "a plan that is not sealed is not done", swap(`"digest": "sha256:`, `"digest": "`), ErrDigest},
		{"an unknown field", "of another version, or misspelt", swap(`"cluster"`, `"clutser": "x", "cluster"`), nil},
		{"trailing text", "two plans in one file", append(bytes.Clone(good), '{', '}'), ErrDamaged},
		{"cut short", "a copy that failed", good[:len(good)/2], ErrDamaged},
		{"cut short at once", "what it was is known all the same", good[:bytes.IndexByte(good, ',')+20], ErrDamaged},
		{"garbage", "a damaged disk", swap(`"changes": [`, `"changes": [#`), ErrDamaged},
		{"the keys in another order", "JSON has none", []byte(`{"kind":"Plan","cluster":"prod","apiVersion":"slipway.dev/v1alpha1"}`), ErrDigest},
		{"another kind", "a cluster, not a plan", []byte(`{"apiVersion":"slipway.dev/v1alpha1","kind":"Cluster"}`), ErrNotAPlan},
		{"YAML", "a cluster file", []byte("kind: Plan\n"), ErrNotAPlan},
		{"nothing", "an empty file", nil, ErrNotAPlan},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Decode(tc.data); err == nil || (tc.want != nil && !errors.Is(err, tc.want)) {
				t.Errorf("error %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestDiff_ShowsChangedInputs(t *testing.T) {
	a, b := sealPlan(t, samplePlan()), samplePlan()
	if d := Diff(a, a); d != "" {
		t.Errorf("a plan and itself: %s", d)
	}
	b.Steps[0].Changes[0].Target = "/etc/sysctl.d/99-other.conf"
	b.FactsDigest = "sha256:g"
	golden.Check(t, "testdata/diff.golden", Diff(a, sealPlan(t, b)))
}

func FuzzDecode(f *testing.F) {
	p := samplePlan()
	if err := p.Seal(); err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"apiVersion":"slipway.dev/v1alpha1","kind":"Plan"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(data)
		if err != nil {
			return
		}
		if again, err := p.computeDigest(); err != nil || again != p.Digest {
			t.Errorf("accepted a plan whose digest is %s, not %s (%v)", again, p.Digest, err)
		}
	})
}
