//go:build e2e && long

package e2e

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Long scenarios, each at most twenty minutes: `make test-long SCENARIO=X`
// runs TestLongX. They are named and recorded in docs/test-long.md.

func TestLongKubernetes1_35(t *testing.T) { otherVersion(t, "v1.35.4") }
func TestLongKubernetes1_36(t *testing.T) { otherVersion(t, "v1.36.4") }
func TestLongKubernetes1_37(t *testing.T) { otherVersion(t, "v1.37.1") }

// otherVersion is the life of a cluster with another Kubernetes.
func otherVersion(t *testing.T, version string) {
	t.Setenv("KUBERNETES", version)
	u := newUser(t)
	u.ok(t, "bundle", "build", "--kubernetes", version, "--source", "modules")
	TestCreate(t)
}

// TestLongCrashEveryBoundary kills the manager at the end of every step in
// turn, within one create.
func TestLongCrashEveryBoundary(t *testing.T) {
	want := undisturbed(t)
	t.Run("killed", func(t *testing.T) {
		s := newSite(t)
		kills := []kill{duringTransfer(), during("kubeadm.init."), during("join.")}
		for _, b := range want.boundaries {
			kills = append(kills, after(b))
		}
		s.createKilledAt(t, kills)
		s.sameCluster(t, want)
		t.Logf("figure: %d kills within one create", len(kills))
	})
}

// TestLongCrashRandom kills at 25 random instants and at 25 inside the steps
// that must not be cut, in two creates of 25 kills each.
func TestLongCrashRandom(t *testing.T) {
	const seed, each = 20260, 25
	random := rand.New(rand.NewPCG(seed, 1))
	want := undisturbed(t)
	inside := []string{"kubeadm.init.", "join.", "runtime."}
	for _, how := range []string{"any instant", "inside steps"} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			watch := look(oneKubeadm)
			args := []string{"create", "cluster", "-f", s.file, "--yes"}
			kills := 0
			for done := false; !done; {
				o := s.start(t, args...)
				var killed bool
				var code int
				switch {
				case kills == each:
					code = o.wait()
				case how == "any instant":
					killed, code = o.killAfter(time.Duration(random.Int64N(int64(6 * time.Second))))
				default:
					k := during(inside[random.IntN(len(inside))])
					skip := random.IntN(20)
					killed, code = o.killWhen(func(h happening) bool {
						if k.at(h) {
							skip--
						}
						return skip < 0
					})
				}
				if killed {
					kills++
				} else if code != 0 {
					t.Fatalf("ends with %d:\n%s", code, tail(o.stderr.String()))
				}
				done = !killed
				args = s.next()
			}
			watch.end(t)
			s.sameCluster(t, want)
			t.Logf("figure: %d kills, seed %d", kills, seed)
		})
	}
}

// TestLongNetworkCut cuts a host's network while it joins, and heals it.
func TestLongNetworkCut(t *testing.T) {
	trouble(t, func(s *site, machine string) {
		s.ok(t, "sandbox", "cut", machine)
		<-time.After(20 * time.Second)
		s.ok(t, "sandbox", "heal", machine)
	})
}

// TestLongReboot reboots a host while it joins.
func TestLongReboot(t *testing.T) {
	trouble(t, func(s *site, machine string) { s.ok(t, "sandbox", "reboot", machine) })
}

// trouble disturbs the last machine in the middle of its install, and then
// resumes if the operation did not get over it by itself.
func trouble(t *testing.T, disturb func(*site, string)) {
	want := undisturbed(t)
	t.Run("disturbed", func(t *testing.T) {
		s := newSite(t)
		machine := s.machines[len(s.machines)-1]
		o := s.start(t, "create", "cluster", "-f", s.file, "--yes")
		disturbed := false
		for h := range o.events {
			if !disturbed && h.Host == machine && h.Task == "runtime.containerd" && h.Type == "step.started" {
				disturbed = true
				disturb(s, machine)
			}
		}
		if !disturbed {
			t.Fatal("the install never came to the point of trouble")
		}
		if code := o.wait(); code != 0 {
			t.Logf("create ends with %d, as it may; resuming", code)
			s.ok(t, "resume", s.name, "--yes")
		}
		s.sameCluster(t, want)
	})
}

// TestLongDiskFull fills a host's disk before the install: one clear line,
// the other hosts' work kept; with room again, resume goes on.
func TestLongDiskFull(t *testing.T) {
	s := newSite(t)
	machine := s.machines[2]
	s.inside(t, machine, "sh", "-c", "fallocate -l $(($(df --output=avail -B1 /var/lib | tail -1) - 300000000)) /var/lib/full")
	r := s.run(t, "create", "cluster", "-f", s.file, "--yes", "--ignore-check", "disk-space")
	if r.code != 1 && r.code != 3 {
		t.Fatalf("create on a full disk ends with %d:\n%s", r.code, tail(r.stderr))
	}
	s.inside(t, machine, "rm", "/var/lib/full")
	s.ok(t, "resume", s.name, "--yes")
	s.nodes(t, s.name, s.machines...)
}

// TestLongImageCollection forces the kubelet's image garbage collection on a
// node, which comes every five minutes, and counts what is left. An image that
// is not the bundle's proves that it ran.
func TestLongImageCollection(t *testing.T) {
	u := newUser(t)
	const cluster = "e2e-images"
	machine := cluster + "-2"
	file := u.machines(t, cluster, 2)
	u.create(t, file)
	list := []string{"ctr", "-n", "k8s.io", "images", "ls", "-q"}
	before := strings.Fields(u.inside(t, machine, list...))
	stray := "example.com/stray:1"
	u.inside(t, machine, "sh", "-c", strayImage, "sh", stray)
	editSpec(t, file, func(spec map[string]any) {
		config := child(child(child(spec, "kubernetes"), "kubelet"), "config")
		config["imageGCHighThresholdPercent"], config["imageGCLowThresholdPercent"] = 1, 0
		config["imageMinimumGCAge"] = "1ms"
	})
	u.exits(t, 0, "apply", "-f", file, "--yes")
	eventually(t, 7*time.Minute, "garbage collection", func() error {
		if slices.Contains(strings.Fields(u.inside(t, machine, list...)), stray) {
			return errors.New(stray + " is still there")
		}
		return nil
	})
	after := strings.Fields(u.inside(t, machine, list...))
	for _, image := range before {
		if !slices.Contains(after, image) {
			t.Errorf("the garbage collection removed %s", image)
		}
	}
	u.smoke(t, cluster, u.nodes(t, cluster, cluster+"-1", machine))
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
