//go:build linux

package executor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/op"
)

const apiManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

func apiServer(arguments ...string) string {
	return "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n    - " +
		strings.Join(arguments, "\n    - ") +
		"\n    image: registry.k8s.io/kube-apiserver:v1.37.1\n    livenessProbe:\n      failureThreshold: 8\n"
}

// TestWait_CountsOnlyProgramOfCurrentManifest checks that only the program of the current manifest counts. The
// previous program also responds until the kubelet has stopped it.
func TestWait_CountsOnlyProgramOfCurrentManifest(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	for _, tc := range []struct {
		name, reason string
		manifest     []string // arguments as YAML
		runs         []string
		serves       bool
	}{
		{
			"the same", "it runs with the current arguments",
			[]string{"--a=1", "--b=x,y"},
			[]string{"kube-apiserver", "--a=1", "--b=x,y"},
			true,
		},
		{"by its path", "an image may name the whole path", []string{"--a=1"}, []string{"/usr/local/bin/kube-apiserver", "--a=1"}, true},
		{"another value", "it is the previous program", []string{"--a=2"}, []string{"kube-apiserver", "--a=1"}, false},
		{"one more", "it is the previous program", []string{"--a=1", "--b=2"}, []string{"kube-apiserver", "--a=1"}, false},
		{"one less", "it is the previous program", []string{"--a=1"}, []string{"kube-apiserver", "--a=1", "--b=2"}, false},
		{"another program", "other programs may have the same arguments", []string{"--a=1"}, []string{"kube-scheduler", "--a=1"}, false},
		{"nothing", "the old one has ended, the new one has not begun", []string{"--a=1"}, []string{""}, false},
		{"quoted", "as YAML wants it", []string{`'--a={"x": ''y''}'`}, []string{"kube-apiserver", `--a={"x": 'y'}`}, true},
		{"quoted, another", "quotes are read", []string{`'--a={"x": 1}'`}, []string{"kube-apiserver", `--a={"x": 2}`}, false},
		{"escaped", "it is known by its name", []string{`"--a=x\ty"`}, []string{"kube-apiserver", "--a=x\ty"}, true},
		{"escaped, another name", "the name is read", []string{`"--b=x\ty"`}, []string{"kube-apiserver", "--a=x\ty"}, false},
		{"folded", "it is known by its name", []string{"--a=x\n      y", "--b=1"}, []string{"kube-apiserver", "--a=x y", "--b=1"}, true},
		{
			"told apart by an id", "else the pod before would count",
			[]string{"--vrrp", "--config-id=0b", "-f", "/a.conf"},
			[]string{"kube-apiserver", "--vrrp", "--config-id=0a", "-f", "/a.conf"},
			false,
		},
		{"expanded", "the kubelet puts a value there", []string{"--a=$(HOST_IP)"}, []string{"kube-apiserver", "--a=192.0.2.11"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.write(apiManifest, apiServer(tc.manifest...))
			h.write("proc/1/cmdline", "/sbin/init\x00")
			h.write("proc/77/cmdline", strings.Join(tc.runs, "\x00")+"\x00")
			wait := op.Wait{HTTP: site.URL + "/readyz", Manifest: apiManifest, TimeoutSeconds: 1}
			if r := h.check(wait)[0]; (r.Status == op.Unchanged) != tc.serves {
				t.Errorf("%s (%v): %s", r.Status, r.Error, tc.reason)
			}
		})
	}
}

func TestWait_ReportsManifestWithoutRunningProgram(t *testing.T) {
	t.Parallel()
	site := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	h := newHost(t)
	h.write("proc/77/cmdline", "kube-apiserver\x00--a=1\x00")
	wait := op.Wait{HTTP: site.URL + "/readyz", Manifest: apiManifest, TimeoutSeconds: 1}
	for file, want := range map[string]string{
		apiServer("--a=2"): "no kube-apiserver runs with the current settings of " + apiManifest,
		"kind: Pod\n":      "has no command",
	} {
		h.write(apiManifest, file)
		if r := h.r.Apply(context.Background(), h.batch(wait), nil)[0]; r.Error == nil || r.Error.Reason != op.ReasonNotServing ||
			!strings.Contains(r.Error.Message, want) {
			t.Errorf("%+v, want %q", r.Error, want)
		}
	}
	if r := h.check(op.Wait{Path: "/etc", Manifest: apiManifest})[0]; r.Error == nil || r.Error.Reason != "Invalid" {
		t.Errorf("what answers is not said: %+v", r)
	}
}

// TestWait_RestartsKubeletThatIgnoresManifest checks that a kubelet is restarted once, if its manifest is newer.
func TestWait_RestartsKubeletThatIgnoresManifest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		manifest, since time.Duration // the age of the manifest, and of the kubelet
		runs            string
		stopped         bool
		restarts        int
	}{
		{"ignored", time.Minute, time.Hour, "--a=1", false, 1},
		{"being started", time.Hour, time.Minute, "--a=1", false, 0},
		{"running", time.Minute, time.Hour, "--a=2", false, 0},
		{"stopped on purpose", time.Minute, time.Hour, "--a=1", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var boot unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &boot); err != nil {
				t.Fatal(err)
			}
			h := newHost(t)
			h.r.kubeletTime = 1
			h.write(apiManifest, apiServer("--a=2"))
			written := time.Now().Add(-tc.manifest)
			if err := os.Chtimes(h.path(apiManifest), written, written); err != nil {
				t.Fatal(err)
			}
			h.write("proc/77/cmdline", "kube-apiserver\x00"+tc.runs+"\x00")
			h.write("etc/systemd/system/kubelet.service", "")
			w := h.see()
			w.Units["kubelet.service"] = &fakeUnit{Active: !tc.stopped, Starts: 5, Since: time.Duration(boot.Nano()) - tc.since}
			h.world(w)
			wait := op.Wait{HTTP: "https://127.0.0.1:1/readyz", Manifest: apiManifest, TimeoutSeconds: 2}
			r := h.r.Apply(context.Background(), h.batch(wait), nil)[0]
			if n := h.see().Units["kubelet.service"].Starts - 5; n != tc.restarts {
				t.Errorf("the kubelet was restarted %d times, want %d: %v", n, tc.restarts, r.Error)
			}
		})
	}
}

// TestWait_EndsWhenNoProgramOfPodRuns checks that a pod counts as ended when none of its programs runs.
func TestWait_EndsWhenNoProgramOfPodRuns(t *testing.T) {
	t.Parallel()
	const config = "/etc/kubernetes/slipway/keepalived.conf"
	for _, tc := range []struct {
		name, reason string
		runs         []string
		ended        bool
	}{
		{"nothing", "there is none", nil, true},
		{"it runs", "it may hold the address", []string{"keepalived", "-f", config}, false},
		{"another of its kind", "it belongs to other software", []string{"keepalived", "-f", "/etc/keepalived/keepalived.conf"}, true},
		{"its name in a text", "an argument is compared whole", []string{"sh", "-c", "cat " + config}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.write("proc/1/cmdline", "/sbin/init\x00")
			if tc.runs != nil {
				h.write("proc/77/cmdline", strings.Join(tc.runs, "\x00")+"\x00")
			}
			wait := op.Wait{Ended: config, TimeoutSeconds: 1}
			if r := h.check(op.RevertStep{Step: "endpoint.keepalived"}, wait)[1]; (r.Status == op.Unchanged) != tc.ended {
				t.Errorf("%s (%v): %s", r.Status, r.Error, tc.reason)
			}
			if r := h.r.Apply(context.Background(), h.batch(wait), nil)[0]; (r.Error == nil) != tc.ended {
				t.Errorf("%+v: %s", r.Error, tc.reason)
			}
		})
	}
}

// TestIsOrdinaryPod_RecognizesPodByCgroup checks that a pod is recognized by its cgroup: its creator chooses
// its command line, but not its cgroup.
func TestIsOrdinaryPod_RecognizesPodByCgroup(t *testing.T) {
	const uid, static = "1f0e6b4c_7d2a_4e8f_9a3b_0c1d2e3f4a5b", "0123456789abcdef0123456789abcdef"
	for _, tc := range []struct {
		name, cgroup string
		ordinary     bool
	}{
		{"ended", "", false},
		{"a service", "0::/system.slice/kubelet.service\n", false},
		{"static", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice/cri-containerd-a.scope\n", false},
		{"static, guaranteed", "0::/kubepods.slice/kubepods-pod" + static + ".slice/cri-containerd-a.scope\n", false},
		{"static, with cgroupfs", "0::/kubepods/burstable/pod" + static + "/a\n", false},
		{"static, of old hierarchies", "4:memory:/kubepods/burstable/pod" + static + "/a\n1:name=systemd:/\n", false},
		{"of a user", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid + ".slice/cri-containerd-a.scope\n", true},
		{"of a user, guaranteed", "0::/kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-a.scope\n", true},
		{"of a user, with cgroupfs", "0::/kubepods/besteffort/pod" + strings.ReplaceAll(uid, "_", "-") + "/a\n", true},
		{"of a user, of old hierarchies", "1:name=systemd:/\n4:memory:/kubepods/pod" + strings.ReplaceAll(uid, "_", "-") + "/a\n", true},
		{
			"of a user who makes cgroups",
			"0::/kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-a.scope/kubepods-pod" + static + ".slice\n", true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.write("proc/77/cmdline", "kube-apiserver\x00--a=1\x00")
			if tc.cgroup != "" {
				h.write("proc/77/cgroup", tc.cgroup)
			}
			if got := health.IsOrdinaryPod(h.path("proc/77")); got != tc.ordinary {
				t.Errorf("got %v", got)
			}
			wait := op.Wait{Ended: "kube-apiserver", TimeoutSeconds: 1}
			if r := h.check(wait)[0]; (r.Status == op.Unchanged) != tc.ordinary {
				t.Errorf("waiting for its end: %s (%v)", r.Status, r.Error)
			}
		})
	}
}

// TestWait_ComparesImageIDOfContainer checks that a container is identified by the ID of
// its image, because its command can be the same before and after an upgrade.
func TestWait_ComparesImageIDOfContainer(t *testing.T) {
	t.Parallel()
	const (
		older, newer = "registry.k8s.io/kube-scheduler:v1.36.4", "registry.k8s.io/kube-scheduler:v1.37.1"
		// Docker's adapter says nothing by the name.
		runs = `{"containers": [{"metadata": {"name": "kube-scheduler"}, "image": {"image": "sha256:0a1b"}, "imageRef": "sha256:0a1b"}]}`
		none = `{"containers": []}`
		both = "sha256:0a1b " + older + "\nsha256:2c3d " + newer + "\n"
	)
	for _, tc := range []struct {
		name, answer, images, image string
		runs                        bool
		message                     string
	}{
		{"the same", runs, both, older, true, ""},
		{"by another name", runs, "sha256:0a1b " + newer + "\n", newer, true, ""},
		{"the one before", runs, both, newer, false, "kube-scheduler runs kube-scheduler:v1.36.4, expected the image kube-scheduler:v1.37.1"},
		{
			"one that is not there any more", runs, "sha256:2c3d " + newer + "\n", newer, false,
			"kube-scheduler runs sha256:0a1b, expected the image kube-scheduler:v1.37.1",
		},
		{"none", none, both, newer, false, "kube-scheduler is not running, expected the image kube-scheduler:v1.37.1"},
		{"the image is yet to come", runs, "sha256:0a1b " + older + "\n", newer, false, "no such image"},
		{"no answer", "oh", both, newer, false, "reading the list of containers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			h.write("images", tc.images)
			h.write("containers", tc.answer)
			script := `#!/bin/sh
case "$1 $5" in
"ps ^kube-scheduler$") cat ` + h.path("containers") + ` ;;
"inspecti $5")
	while read -r id tag; do
		[ "$5" = "$id" ] || [ "$5" = "$tag" ] || continue
		echo '{"status": {"id": "'$id'", "repoTags": ["'$tag'"]}}'
		exit
	done < ` + h.path("images") + `
	echo "no such image $5 present" >&2
	exit 1 ;;
*) exit 2 ;;
esac
`
			if err := os.WriteFile(filepath.Join(h.fakes, "crictl"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			wait := op.Wait{Container: "kube-scheduler", Image: tc.image, TimeoutSeconds: 1}
			if r := h.check(wait)[0]; (r.Status == op.Unchanged) != tc.runs {
				t.Fatalf("%s (%v), want it to run: %t", r.Status, r.Error, tc.runs)
			}
			if tc.runs {
				return
			}
			if r := h.r.Apply(t.Context(), h.batch(wait), nil)[0]; r.Error == nil || !strings.Contains(r.Error.Message, tc.message) {
				t.Errorf("%v, want it to say %q", r.Error, tc.message)
			}
		})
	}
}

// TestWait_RequiresExactResponse checks that a response counts only if it is exactly the expected text.
func TestWait_RequiresExactResponse(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "iptables") }))
	t.Cleanup(site.Close)
	for says, counts := range map[string]bool{"": true, "iptables": true, "ip": false, "nftables": false} {
		wait := op.Wait{HTTP: site.URL, Says: says, TimeoutSeconds: 1}
		if r := newHost(t).check(wait)[0]; (r.Status == op.Unchanged) != counts {
			t.Errorf("%q: %s (%v)", says, r.Status, r.Error)
		}
	}
	if r := newHost(t).check(op.Wait{Path: "/etc", Says: "iptables", TimeoutSeconds: 1})[0]; r.Error == nil {
		t.Error("a wait for the text of a file is accepted")
	}
}

// TestWait_RequiresMinimumRunTimeOfUnit checks that a response counts only when the kubelet has run for a while.
// Until then, the kubelet may stop the program once more.
func TestWait_RequiresMinimumRunTimeOfUnit(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(site.Close)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		started time.Duration
		counts  bool
	}{
		{"long ago", time.Second, true},
		{"just now", time.Duration(now.Nano()), false},
		{"never", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			w := h.see()
			w.Units["kubelet.service"] = &fakeUnit{Active: tc.started > 0, Starts: int(tc.started / time.Microsecond)}
			h.world(w)
			wait := op.Wait{HTTP: site.URL, Since: "kubelet.service", SinceSeconds: 60, TimeoutSeconds: 1}
			if r := h.check(wait)[0]; (r.Status == op.Unchanged) != tc.counts {
				t.Errorf("%s (%v)", r.Status, r.Error)
			}
		})
	}
	h := newHost(t)
	for _, wait := range []op.Wait{
		{HTTP: site.URL, Since: "kubelet.service"},
		{Path: "/etc/hosts", Since: "kubelet.service", SinceSeconds: 1},
	} {
		if r := h.check(wait)[0]; r.Error == nil || r.Error.Reason != "Invalid" {
			t.Errorf("%+v: %+v", wait, r)
		}
	}
}
