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

func TestLongKubernetes1_35(t *testing.T) { otherVersion(t, "v1.35.6") }
func TestLongKubernetes1_36(t *testing.T) { otherVersion(t, "v1.36.4") }
func TestLongKubernetes1_37(t *testing.T) { otherVersion(t, "v1.37.1") }

// otherVersion is the life of a cluster with another Kubernetes.
func otherVersion(t *testing.T, version string) {
	t.Setenv("KUBERNETES", version)
	newUser(t).prepareBundles(t, version)
	TestCreate(t)
}

// TestLongCrashEveryBoundary kills the manager at the end of every step in
// turn, and inside the steps that must not be cut, within one create.
func TestLongCrashEveryBoundary(t *testing.T) {
	want := runUndisturbed(t)
	ms := newMoments(inTransfer(), inPhase("kubeadm.init.certs", ""), inPhase("join.kubelet-start", ""))
	for _, b := range listBoundaries(want.run) {
		ms.left = append(ms.left, momentAfter(b))
	}
	t.Run("killed", func(t *testing.T) {
		s := newSite(t)
		all := len(ms.left)
		begin := time.Now()
		kills := s.killedAt(t, ms, s.name, s.createArgs()...)
		for _, name := range ms.listMissing() {
			t.Errorf("never came: %s", name)
		}
		if kills < all*9/10 {
			t.Errorf("%d kills for %d moments: too many came while the manager died of another", kills, all)
		}
		t.Logf("figure: %d moments, %d kills within one create, %.0f s", all, kills, time.Since(begin).Seconds())
		s.sameCluster(t, want)
	})
}

// TestLongCrashRandom kills at 25 random instants, spread over the whole of
// one create, and in another at 25 inside the steps that must not be cut.
func TestLongCrashRandom(t *testing.T) {
	const seed, each = 20260, 25
	random := rand.New(rand.NewPCG(seed, 1))
	want := runUndisturbed(t)
	for _, half := range []struct {
		name  string
		kills []*moment
	}{
		{"any instant", randomInstants(want.run, random, each)},
		// Two that are too near to each other become one, so there are a
		// few more than wanted.
		{"inside steps", momentsWithin(want.run, random, 14, each-14+5)},
	} {
		t.Run(half.name, func(t *testing.T) {
			s := newSite(t)
			ms := newMoments(half.kills...)
			begin := time.Now()
			kills := s.killedAt(t, ms, s.name, s.createArgs()...)
			if kills < each {
				t.Errorf("%d kills are fewer than %d; these did not come: %s", kills, each, strings.Join(ms.listMissing(), ", "))
			}
			t.Logf("figure: %s: %d kills, seed %d, %.0f s", half.name, kills, seed, time.Since(begin).Seconds())
			s.sameCluster(t, want)
		})
	}
}

// TestLongNetworkCut cuts a host's network for longer than a connection
// lives, and heals it.
func TestLongNetworkCut(t *testing.T) {
	disturbSteps(t, func(t *testing.T, s *site, machine string) time.Time {
		s.mustRun(t, "sandbox", "cut", machine)
		hit := time.Now()
		<-time.After(45 * time.Second)
		s.mustRun(t, "sandbox", "heal", machine)
		return hit
	})
}

// TestLongReboot reboots a host as a person would.
func TestLongReboot(t *testing.T) {
	disturbSteps(t, func(t *testing.T, s *site, machine string) time.Time {
		hit := time.Now()
		s.mustRun(t, "sandbox", "reboot", machine)
		return hit
	})
}

// TestLongPowerLoss has a host die without a word and come back.
func TestLongPowerLoss(t *testing.T) {
	disturbSteps(t, func(t *testing.T, s *site, machine string) time.Time {
		s.mustRun(t, "sandbox", "kill", machine)
		hit := time.Now()
		s.mustRun(t, "sandbox", "start", machine)
		return hit
	})
}

// disturbSteps disturbs a host in the middle of each of the important steps, each in a
// separate create, and resumes if the operation does not recover automatically. disturb
// returns when the host was hit.
func disturbSteps(t *testing.T, disturb func(*testing.T, *site, string) time.Time) {
	want := runUndisturbed(t)
	for _, p := range troublePoints {
		t.Run(p.name, func(t *testing.T) {
			s := newSite(t)
			watch := startWatch(oneKubeadm)
			defer watch.endWatch(t)
			o := s.startOperation(t, s.createArgs()...)
			ms := newMoments(p.newMoment())
			if o.readUntil(ms) == nil {
				t.Fatalf("never came: %s; create ends with %d:\n%s", strings.Join(ms.listMissing(), ", "), o.waitForExit(), textTail(o.stderr.String()))
			}
			rest := make(chan []happening, 1)
			go func() { rest <- o.readRest() }() // it continues meanwhile
			hit := disturb(t, s, p.host)
			for _, h := range <-rest {
				if h.boundaryName() == p.task+"@"+p.host && h.Time.Before(hit) {
					t.Errorf("%s had ended %s before its host was hit", h.stepName(), hit.Sub(h.Time))
				}
			}
			code := o.waitForExit()
			if code != 0 {
				t.Logf("create ends with %d, as it may; resuming:\n%s", code, textTail(o.stderr.String()))
				s.mustRun(t, "resume", s.name, "--yes")
			}
			t.Logf("figure: %s: create ends with %d", p.name, code)
			s.sameCluster(t, want)
		})
	}
}

// TestLongDiskFull fills a host's disk in the middle of the install. There is one clear
// line for that host, with cause and remedy, and the work of the other hosts is kept. With
// free space, resume continues.
func TestLongDiskFull(t *testing.T) {
	s := newSite(t)
	const full = siteName + "-3"
	o := s.startOperation(t, s.createArgs()...)
	ms := newMoments(&moment{name: "a blob on its way to " + full, at: func(h happening) bool { return h.isTransferring() && h.Host == full }})
	if o.readUntil(ms) == nil {
		t.Fatalf("never came: %v; create ends with %d:\n%s", ms.listMissing(), o.waitForExit(), textTail(o.stderr.String()))
	}
	run := make(chan []happening)
	go func() { run <- o.readRest() }()
	s.mustExec(t, full, "sh", "-c", "fallocate -l $(($(df --output=avail -B1 /var/lib | tail -1) - 16000000)) /var/lib/full")
	first := <-run
	if code := o.waitForExit(); code != 1 {
		t.Fatalf("create on a full disk ends with %d, want 1:\n%s", code, textTail(o.stderr.String()))
	}
	oneFailure(t, o.stderr.String(), full, `is full|no space left on device`, "free disk space on the host")

	s.mustExec(t, full, "rm", "/var/lib/full")
	o = s.startOperation(t, "resume", s.name, "--yes")
	second := o.readRest()
	if code := o.waitForExit(); code != 0 {
		t.Fatalf("resume with room again ends with %d:\n%s", code, textTail(o.stderr.String()))
	}
	kept, lost := keptWork(first, second, full)
	if len(lost) > 0 || kept < 10 {
		t.Errorf("%d steps of other hosts were kept; these were done again: %s", kept, strings.Join(lost, ", "))
	}
	s.requireEmptyPlan(t, s.file)
	s.smokeTest(t, s.name, s.waitForNodes(t, s.name, s.machines...))
	t.Logf("figure: %d steps of the other hosts kept", kept)
}

// TestLongImageCollection forces the kubelet's image garbage collection on a node, which
// runs every five minutes, and counts the remaining images. The removal of an image that
// is not in the bundle proves that it ran.
func TestLongImageCollection(t *testing.T) {
	u := newUser(t)
	const cluster = "e2e-images"
	machine := cluster + "-2"
	file := u.createMachines(t, cluster, 2)
	u.createCluster(t, file)
	list := []string{"ctr", "-n", "k8s.io", "images", "ls", "-q"}
	before := strings.Fields(u.mustExec(t, machine, list...))
	stray := "example.com/stray:1"
	u.mustExec(t, machine, "sh", "-c", strayImage, "sh", stray)
	editSpec(t, file, func(spec map[string]any) {
		config := childMap(childMap(childMap(spec, "kubernetes"), "kubelet"), "config")
		config["imageGCHighThresholdPercent"], config["imageGCLowThresholdPercent"] = 1, 0
		config["imageMinimumGCAge"] = "1ms"
	})
	u.mustExit(t, 0, "apply", "-f", file, "--yes")
	eventually(t, 7*time.Minute, "garbage collection", func() error {
		if slices.Contains(strings.Fields(u.mustExec(t, machine, list...)), stray) {
			return errors.New(stray + " is still there")
		}
		return nil
	})
	after := strings.Fields(u.mustExec(t, machine, list...))
	for _, image := range before {
		if !slices.Contains(after, image) {
			t.Errorf("the garbage collection removed %s", image)
		}
	}
	u.smokeTest(t, cluster, u.waitForNodes(t, cluster, cluster+"-1", machine))
}

// strayImage is a shell script that imports an image named $1, of one layer
// that no other image has.
const strayImage = `set -e
dir=$(mktemp -d); cd "$dir"; mkdir -p blobs/sha256
put() { d=$(sha256sum "$1" | cut -d' ' -f1); mv "$1" blobs/sha256/$d; echo $d; }
echo stray >stray; tar cf layer stray; diff=$(sha256sum layer | cut -d' ' -f1); size=$(stat -c %s layer); l=$(put layer)
printf '{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' $diff >config; cs=$(stat -c %s ` +
	`config); c=$(put config)
t=application/vnd.oci.image
printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json","digest":"sha256:%s",` +
	`"size":%s},"layers":[{"mediaType":"%s.layer.v1.tar","digest":"sha256:%s","size":%s}]}' $t $t $c $cs $t $l $size >m; ms=$(stat -c %s ` +
	`m); m=$(put m)
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s.manifest.v1+json","digest":"sha256:%s","size":%s,` +
	`"annotations":{"io.containerd.image.name":"%s"}}]}' $t $m $ms "$1" >index.json
echo '{"imageLayoutVersion":"1.0.0"}' >oci-layout
tar cf image.tar oci-layout index.json blobs
ctr -n k8s.io images import image.tar >/dev/null; cd /; rm -rf "$dir"`

// TestLongGuide runs the pages of the guide that TestGuide leaves out.
func TestLongGuide(t *testing.T) {
	runPages(t, len(longPages), func(page string) bool { return slices.Contains(longPages, page) })
}
