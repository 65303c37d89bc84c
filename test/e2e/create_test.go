//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCreate is a cluster's whole life on three machines, with a fourth that
// nobody touches beside them.
func TestCreate(t *testing.T) {
	u := newUser(t)
	const name = "e2e-create"
	machines := []string{name + "-1", name + "-2", name + "-3"}
	control := name + "-4"
	file := u.machines(t, name, 4)
	editSpec(t, file, func(spec map[string]any) { spec["hosts"] = spec["hosts"].([]any)[:3] })

	before := map[string]snapshot{}
	for _, m := range append(slices.Clone(machines), control) {
		before[m] = u.snapshot(t, m)
		before[m].untouched(t, m)
	}

	t.Run("plan", func(t *testing.T) { u.plansAndTouchesNothing(t, file, machines, before) })
	if t.Failed() {
		return
	}
	r := u.create(t, file)
	t.Logf("created in %s, at most %d MiB", r.took.Round(100*time.Millisecond), r.maxRSS>>20)
	addresses := u.nodes(t, name, machines...)
	t.Run("smoke", func(t *testing.T) { u.smoke(t, name, addresses) })
	t.Run("refused", func(t *testing.T) { u.refusesSecondCreate(t, file) })
	t.Run("apply again", func(t *testing.T) { u.appliesNothing(t, name, file, machines) })
	t.Run("change", func(t *testing.T) { u.changesExactly(t, name, file, machines) })
	t.Run("image garbage collection", func(t *testing.T) { u.keepsImages(t, name, file, machines[1]) })
	t.Run("delete", func(t *testing.T) {
		u.exits(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
		untouchedAfter := u.snapshot(t, control)
		same(t, control+", which nobody touched", "touched", before[control], untouchedAfter)
		for _, m := range machines {
			after := u.snapshot(t, m)
			same(t, m+" before and after", "touched", before[m], after)
			same(t, m+" and a machine never touched", "other", untouchedAfter, after)
		}
		if out := u.ok(t, "get", "clusters"); strings.Contains(out, name) {
			t.Errorf("the deleted cluster is still listed:\n%s", out)
		}
	})
}

// plansAndTouchesNothing plans twice: the same bytes, and hosts as before.
func (u *user) plansAndTouchesNothing(t *testing.T, file string, machines []string, before map[string]snapshot) {
	first := u.ok(t, "plan", "-f", file, "-o", "json")
	if second := u.ok(t, "plan", "-f", file, "-o", "json"); first != second {
		t.Errorf("two plans differ:\n%s\n%s", tail(first), tail(second))
	}
	if p := decode[planned](t, first); len(p.Steps) == 0 || p.Digest == "" {
		t.Errorf("a plan for fresh hosts has %d steps and digest %q", len(p.Steps), p.Digest)
	}
	for _, m := range machines {
		same(t, m+" after planning", "touched", before[m], u.snapshot(t, m))
	}
}

// refusesSecondCreate creates what exists: refused, with what to do instead.
func (u *user) refusesSecondCreate(t *testing.T, file string) {
	r := u.exits(t, 2, "create", "cluster", "-f", file, "--yes")
	if !strings.Contains(r.stderr, "slipway apply") {
		t.Errorf("the refusal does not name `slipway apply`:\n%s", r.stderr)
	}
}

// appliesNothing applies an unchanged file: nothing restarts, no file is
// written.
func (u *user) appliesNothing(t *testing.T, cluster, file string, machines []string) {
	u.unchanged(t, file)
	before := u.pulse(t, cluster, machines)
	r := u.exits(t, 0, "apply", "-f", file, "--yes")
	t.Logf("applied nothing in %s", r.took.Round(10*time.Millisecond))
	stillBeats(t, "an unchanged apply", before, u.pulse(t, cluster, machines))
}

// changesExactly changes a kubelet setting and a label: the plan names these
// and nothing else, and so do the hosts afterwards.
func (u *user) changesExactly(t *testing.T, cluster, file string, machines []string) {
	editSpec(t, file, func(spec map[string]any) {
		kubernetes := child(spec, "kubernetes")
		child(child(kubernetes, "kubelet"), "config")["maxPods"] = 77
		host := spec["hosts"].([]any)[1].(map[string]any)
		child(host, "labels")["example.com/zone"] = "east"
	})
	p := decode[planned](t, u.exits(t, 4, "plan", "-f", file, "--exit-code", "-o", "json").stdout)
	for _, s := range p.Steps {
		for _, c := range s.Changes {
			about := s.Task + " " + c.Kind + " " + c.Target + " " + c.Summary
			if !strings.Contains(about, "kubelet") && !strings.Contains(about, "label") {
				t.Errorf("the plan for a kubelet setting and a label names %q on %q", about, s.Host)
			}
		}
	}
	before := u.pulse(t, cluster, machines)
	u.exits(t, 0, "apply", "-f", file, "--yes")
	u.nodes(t, cluster, machines...)
	if got := u.kubectl(t, cluster, "get", "node", machines[1], "-o", `jsonpath={.metadata.labels.example\.com/zone}`); got != "east" {
		t.Errorf("label is %q, want east", got)
	}
	for _, m := range machines {
		got := u.kubectl(t, cluster, "get", "--raw", "/api/v1/nodes/"+m+"/proxy/configz")
		if !strings.Contains(got, `"maxPods":77`) {
			t.Errorf("the kubelet of %s does not run with maxPods 77", m)
		}
	}
	after := u.pulse(t, cluster, machines)
	for key := range after {
		if strings.Contains(key, "kubelet") || strings.Contains(key, "slipway") {
			delete(before, key)
			delete(after, key)
		}
	}
	stillBeats(t, "a kubelet setting and a label", before, after)
	u.unchanged(t, file)
}

// keepsImages forces the kubelet's image garbage collection on a node, and
// counts what is left. An image that is not the bundle's proves that it ran.
func (u *user) keepsImages(t *testing.T, cluster, file, machine string) {
	list := []string{"ctr", "-n", "k8s.io", "images", "ls", "-q"}
	before := strings.Fields(u.inside(t, machine, list...))
	stray := "example.com/stray:1"
	u.inside(t, machine, "sh", "-c", strayImage, "sh", stray)
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) {
		config := child(child(child(spec, "kubernetes"), "kubelet"), "config")
		config["imageGCHighThresholdPercent"], config["imageGCLowThresholdPercent"] = 1, 0
		config["imageMinimumGCAge"] = "1ms"
	})
	u.exits(t, 0, "apply", "-f", file, "--yes")
	eventually(t, 7*time.Minute, "garbage collection", func() error {
		if slices.Contains(strings.Fields(u.inside(t, machine, list...)), stray) {
			return os.ErrExist
		}
		return nil
	})
	after := strings.Fields(u.inside(t, machine, list...))
	for _, image := range before {
		if !slices.Contains(after, image) {
			t.Errorf("the garbage collection removed %s", image)
		}
	}
	if err := os.WriteFile(file, saved, 0o600); err != nil {
		t.Fatal(err)
	}
	u.exits(t, 0, "apply", "-f", file, "--yes")
}

// strayImage is a shell script that imports an image named $1, of one layer
// that no other image has.
const strayImage = `set -e
dir=$(mktemp -d); cd "$dir"; mkdir -p blobs/sha256
put() { d=$(sha256sum "$1" | cut -d' ' -f1); mv "$1" blobs/sha256/$d; echo $d; }
echo stray >stray; tar cf layer stray; diff=$(sha256sum layer | cut -d' ' -f1); size=$(stat -c %s layer); l=$(put layer)
printf '{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' $diff >config; cs=$(stat -c %s config); c=$(put config)
t=application/vnd.oci.image
printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"%s.layer.v1.tar","digest":"sha256:%s","size":%s}]}' $t $t $c $cs $t $l $size >m; ms=$(stat -c %s m); m=$(put m)
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"%s"}}]}' $t $m $ms "$1" >index.json
echo '{"imageLayoutVersion":"1.0.0"}' >oci-layout
tar cf image.tar oci-layout index.json blobs
ctr -n k8s.io images import image.tar >/dev/null; cd /; rm -rf "$dir"`
