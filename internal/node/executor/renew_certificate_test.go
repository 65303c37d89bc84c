//go:build linux

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/process"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

const kubeletPEM = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// withCertificates returns a host whose certificates expire after a time.
func withCertificates(t *testing.T, left time.Duration) *testHost {
	t.Helper()
	h := newHost(t)
	now := time.Now()
	ca := pkitest.NewAuthority(t, "kubernetes", now.Add(-24*time.Hour), now.Add(240*time.Hour))
	h.write("etc/kubernetes/pki/ca.crt", ca.Cert)
	h.write("etc/kubernetes/pki/ca.key", ca.Key)
	cert, key := ca.IssueCertificate(t, "kube-apiserver", now.Add(left))
	h.write("etc/kubernetes/pki/apiserver.crt", cert)
	h.write("etc/kubernetes/pki/apiserver.key", key)
	cert, key = ca.IssueCertificate(t, "admin", now.Add(left))
	h.write("etc/kubernetes/admin.conf", pkitest.MakeKubeconfig("https://api:6443", ca.Cert, "", cert, key))
	if err := os.Chmod(h.path("etc/kubernetes/admin.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key = ca.IssueCertificate(t, "system:node:cp1", now.Add(left))
	h.write("var/lib/kubelet/pki/kubelet-client-1.pem", cert+key)
	if err := os.Symlink("kubelet-client-1.pem", h.path(kubeletPEM)); err != nil {
		t.Fatal(err)
	}
	h.write("etc/systemd/system/kubelet.service", "[Service]\n")
	return h
}

// running sets whether the kubelet runs.
func (h *testHost) running(active bool) {
	w := h.see()
	w.Units["kubelet.service"] = &fakeUnit{Active: active}
	h.world(w)
}

func underCA(path, key string) op.RenewCertificate {
	return op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: path, Key: key, CA: "/etc/kubernetes/pki/ca.crt"},
		CAKey:           "/etc/kubernetes/pki/ca.key", ValiditySeconds: 24 * 3600,
	}
}

// TestRenewCertificate_ReplacesOnlyDueCertificate checks that a due certificate is renewed in its place, with the mode of its
// file. Nothing else changes.
func TestRenewCertificate_ReplacesOnlyDueCertificate(t *testing.T) {
	for name, o := range map[string]op.RenewCertificate{
		"/etc/kubernetes/pki/apiserver.crt": underCA("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key"),
		"/etc/kubernetes/admin.conf":        underCA("/etc/kubernetes/admin.conf", ""),
	} {
		t.Run(name, func(t *testing.T) {
			if r := withCertificates(t, 20*time.Hour).check(o)[0]; r.Status != op.Unchanged {
				t.Errorf("it is good for most of a day: %+v", r)
			}
			h := withCertificates(t, time.Hour)
			before := h.snapshot()
			if r := h.check(o)[0]; r.Summary != "renew: it expires soon or has expired" {
				t.Fatalf("check says %+v", r)
			}
			h.apply(o)
			after := h.snapshot()
			was, is := before[name], after[name]
			if was.Content == is.Content || was.Mode != is.Mode {
				t.Errorf("%s: another content: %t, mode %s, was %s", name, was.Content != is.Content, is.Mode, was.Mode)
			}
			delete(before, name)
			maps.DeleteFunc(after, func(p string, _ entry) bool { return p == name || strings.HasPrefix(p, "/var/lib/slipway") })
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("something else changed (-want +got):\n%s", d)
			}
			if r := h.check(o)[0]; r.Status != op.Unchanged {
				t.Errorf("renewed, it says %+v", r)
			}
		})
	}
}

// TestRenewCertificate_ReportsProblemsBeforeAnyChange checks that problems are reported by the check, before anything is
// changed.
func TestRenewCertificate_ReportsProblemsBeforeAnyChange(t *testing.T) {
	due := underCA("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key")
	for _, tc := range []struct {
		name, want string
		change     func(*testHost, *op.RenewCertificate)
	}{
		{"authority without its key", op.IDAuthorityNoKey, func(h *testHost, _ *op.RenewCertificate) { h.remove("etc/kubernetes/pki/ca.key") }},
		{"no authority named", "Invalid", func(_ *testHost, o *op.RenewCertificate) { o.CA = "" }},
		{"for no time", "Invalid", func(_ *testHost, o *op.RenewCertificate) { o.ValiditySeconds = 0 }},
		{"remade by nobody", "Invalid", func(_ *testHost, o *op.RenewCertificate) { o.Remade = true }},
		{"no clean path", "Invalid", func(_ *testHost, o *op.RenewCertificate) { o.CAKey = "ca.key" }},
		{"no unit", "Invalid", func(_ *testHost, o *op.RenewCertificate) { o.Unit = "-kubelet" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := withCertificates(t, time.Hour)
			o := due
			tc.change(h, &o)
			before := h.snapshot()
			r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
			if r.Error == nil || r.Error.Reason != tc.want {
				t.Errorf("%+v, want %s", r, tc.want)
			}
			if d := cmp.Diff(before, h.snapshot()); d != "" {
				t.Errorf("something changed (-want +got):\n%s", d)
			}
		})
	}
}

// TestRenewCertificate_RestartsKubeletWithExpiredCertificate checks that a kubelet with an expired certificate is stopped, gets
// another certificate behind the same link, and is started. It is also started after an
// interruption.
func TestRenewCertificate_RestartsKubeletWithExpiredCertificate(t *testing.T) {
	t.Parallel()
	o := underCA(kubeletPEM, "")
	o.Due, o.Unit = op.DueExpired, "kubelet.service"
	h := withCertificates(t, time.Hour)
	h.running(true)
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("the kubelet can renew its certificate: %+v", r)
	}
	h = withCertificates(t, -time.Hour)
	h.running(true)
	h.apply(o)
	var calls []string
	for _, c := range h.see().Calls {
		if !strings.Contains(c, " show ") {
			calls = append(calls, c)
		}
	}
	if d := cmp.Diff([]string{
		"systemctl --no-ask-password stop -- kubelet.service",
		"systemctl --no-ask-password start -- kubelet.service",
	}, calls); d != "" {
		t.Errorf("calls of systemctl (-want +got):\n%s", d)
	}
	if to, err := os.Readlink(h.path(kubeletPEM)); err != nil || to != "kubelet-client-1.pem" {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if _, err := pki.ParseKey([]byte(h.read("var/lib/kubelet/pki/kubelet-client-1.pem"))); err != nil {
		t.Errorf("its key: %v", err)
	}
	if r := h.check(o, op.Wait{Certificate: "/var/lib/kubelet/pki/kubelet-client-1.pem", TimeoutSeconds: 1}); r[0].Status != op.Unchanged ||
		r[1].Status != op.Unchanged {
		t.Errorf("renewed, it says %+v", r)
	}
	h.running(false)
	if r := h.check(o)[0]; r.Summary != "start kubelet.service" {
		t.Errorf("cut off before it was started: %+v", r)
	}
	h.apply(o)
	if !h.see().Units["kubelet.service"].Active {
		t.Error("it was not started")
	}
}

// TestRenewCertificate_UpdatesRecordOfUnitStart checks that the record of a unit's last start gets the new
// certificate, so that the unit needs no restart. Nothing is recorded for a file that the
// unit was not started with.
func TestRenewCertificate_UpdatesRecordOfUnitStart(t *testing.T) {
	t.Parallel()
	o := underCA("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key")
	o.Unit = "old.service"
	h := withCertificates(t, time.Hour)
	s, err := h.r.session(host.Batch{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteRecord(s.StatePath("units", o.Unit+".json"),
		systemctl.UnitRecord{Files: map[string]string{o.Path: "before", "/etc/other": "before"}}); err != nil {
		t.Fatal(err)
	}
	h.apply(o)
	rec, err := systemctl.ReadUnitRecord(s.Host, o.Unit)
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.StateOf(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{o.Path: state, "/etc/other": "before"}, rec.Files); d != "" {
		t.Errorf("it was started with (-want +got):\n%s", d)
	}
}

// TestRenewCertificate_RemovesPairThatKubeletRecreates checks that a certificate that the kubelet makes for itself is
// removed with its key.
func TestRenewCertificate_RemovesPairThatKubeletRecreates(t *testing.T) {
	t.Parallel()
	h := withCertificates(t, time.Hour)
	h.running(true)
	cert, key := pkitest.NewAuthority(t, "cp1-ca", time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour)).IssueCertificate(t,
		"cp1", time.Now().Add(time.Hour))
	h.write("var/lib/kubelet/pki/kubelet.crt", cert)
	h.write("var/lib/kubelet/pki/kubelet.key", key)
	o := op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: "/var/lib/kubelet/pki/kubelet.crt", Key: "/var/lib/kubelet/pki/kubelet.key"},
		Remade:          true, Unit: "kubelet.service", ValiditySeconds: 3600 * 24,
	}
	h.apply(o)
	for _, name := range []string{"kubelet.crt", "kubelet.key"} {
		if _, there := h.snapshot()["/var/lib/kubelet/pki/"+name]; there {
			t.Errorf("%s is still there", name)
		}
	}
	if u := h.see().Units["kubelet.service"]; !u.Active || u.Starts != 1 {
		t.Errorf("the kubelet: %+v", u)
	}
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("until the kubelet has made another, nothing is to be done: %+v", r)
	}
}

// TestInspectCertificates_DescribesEachCertificate checks that the result describes each certificate and contains no key.
func TestInspectCertificates_DescribesEachCertificate(t *testing.T) {
	t.Parallel()
	h := withCertificates(t, time.Hour)
	h.remove("etc/kubernetes/pki/ca.key")
	ca := "/etc/kubernetes/pki/ca.crt"
	r := h.check(op.InspectCertificates{Files: []op.CertificateFile{
		{Path: ca, Key: "/etc/kubernetes/pki/ca.key"},
		{Path: "/etc/kubernetes/admin.conf", CA: ca},
		{Path: "/etc/kubernetes/pki/nosuch.crt", CA: ca},
	}})[0]
	var got []op.CertificateState
	if err := json.Unmarshal(r.Output, &got); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	for i := range got {
		got[i].Begins, got[i].Ends = time.Time{}, time.Time{}
	}
	want := []op.CertificateState{
		{Path: ca, Subject: "kubernetes", Issuer: "kubernetes", Authority: true, NoKey: true},
		{Path: "/etc/kubernetes/admin.conf", Subject: "admin", Issuer: "kubernetes"},
		{Path: "/etc/kubernetes/pki/nosuch.crt", Missing: true},
	}
	if d := cmp.Diff(want, got); d != "" || r.Status != op.Unchanged {
		t.Errorf("%s (-want +got):\n%s", r.Status, d)
	}
	if r := h.check(op.InspectCertificates{Files: []op.CertificateFile{{Path: "../shadow"}}})[0]; r.Error == nil ||
		r.Error.Reason != "Invalid" {
		t.Errorf("a path that is none: %+v", r)
	}
}

func TestWait_RequiresValidCertificate(t *testing.T) {
	t.Parallel()
	h := withCertificates(t, -time.Hour)
	h.write("etc/garbage", "what?")
	for path, want := range map[string]string{
		"/etc/kubernetes/pki/ca.crt": "", "/etc/kubernetes/admin.conf": "wait", "/etc/nosuch": "wait", "/etc/garbage": "wait",
	} {
		if r := h.check(op.Wait{Certificate: path, TimeoutSeconds: 1})[0]; r.Summary != want || r.Target != path {
			t.Errorf("%s: %+v, want %q", path, r, want)
		}
	}
}

const schedulerManifest = "/etc/kubernetes/manifests/kube-scheduler.yaml"

// pod makes a process look like the scheduler in a pod of this machine, or of a machine
// that runs inside it. stat comes from the machine that runs the test.
func (h *testHost) pod(pid int, stat, namespace string) {
	h.t.Helper()
	i := strings.LastIndexByte(stat, ')')
	f := strings.Fields(stat[i+1:])
	f[1] = "50" // the shim
	h.write(fmt.Sprintf("proc/%d/stat", pid), stat[:i+1]+" "+strings.Join(f, " "))
	h.write(fmt.Sprintf("proc/%d/cmdline", pid), "kube-scheduler\x00--kubeconfig=/etc/kubernetes/scheduler.conf\x00")
	h.write("proc/50/cmdline",
		"/usr/local/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00a\x00-address\x00"+process.ContainerdSocket+"\x00")
	for link, to := range map[string]string{
		"proc/self/ns/pid": "pid:[1]", "proc/50/ns/pid": namespace,
		"proc/50/exe": "/usr/local/bin/containerd-shim-runc-v2",
	} {
		if err := os.MkdirAll(h.path(link[:strings.LastIndexByte(link, '/')]), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Symlink(to, h.path(link)); err != nil && !os.IsExist(err) {
			h.t.Fatal(err)
		}
	}
}

// inDocker runs the container of the scheduler in Docker, in the cgroup of a pod or in
// none.
func inDocker(pod string) func(*testHost) {
	return func(h *testHost) {
		h.write("proc/50/cmdline",
			"/usr/local/bin/containerd-shim-runc-v2\x00-namespace\x00moby\x00-id\x00a\x00-address\x00/run/docker/containerd/containerd.sock\x00")
		h.write("proc/77/cgroup", "4:memory:/kubepods/burstable/"+pod+"a\n")
	}
}

func scheduler(h *testHost) op.StaticPodRestart {
	h.write(schedulerManifest,
		"spec:\n  containers:\n  - command:\n    - kube-scheduler\n    - --kubeconfig=/etc/kubernetes/scheduler.conf\n    image: x\n")
	return op.StaticPodRestart{Manifest: schedulerManifest, Files: []string{"/etc/kubernetes/scheduler.conf"}, TimeoutSeconds: 20}
}

// started returns the stat line of a process. Only its start time matters.
func started(ticks int) string {
	return fmt.Sprintf("77 (kube-scheduler) S 50%s %d 0", strings.Repeat(" 0", 17), ticks)
}

// TestStaticPodRestart_IsNeededIfFileIsNewerThanStart checks that only the program of the
// static pod counts, and only if it was started before the file was created.
func TestStaticPodRestart_IsNeededIfFileIsNewerThanStart(t *testing.T) {
	const long = 1 << 33 // after boot: the file is older, whenever it was made
	for _, tc := range []struct {
		name, reason string
		stat, ns     string
		change       func(*testHost)
		want         string
	}{
		{
			"started before the file", "it has not read it", started(1), "pid:[1]", func(*testHost) {},
			"restart: /etc/kubernetes/scheduler.conf changed",
		},
		{"started after it", "it has read it", started(long), "pid:[1]", func(*testHost) {}, ""},
		{"of a machine inside", "it is not ours to end", started(1), "pid:[2]", func(*testHost) {}, ""},
		{
			"another program", "it may have the same arguments", started(1), "pid:[1]",
			func(h *testHost) { h.write("proc/77/cmdline", "cat\x00") }, "",
		},
		{"no file", "there is nothing to read", started(1), "pid:[1]", func(h *testHost) { h.remove("etc/kubernetes/scheduler.conf") }, ""},
		{"no pod", "there is nothing to restart", started(1), "pid:[1]", func(h *testHost) { h.remove(schedulerManifest[1:]) }, ""},
		{"not running", "what starts later reads it then", started(1), "pid:[1]", func(h *testHost) { h.remove("proc/77/cmdline") }, ""},
		{
			"with Docker", "its shims are of another containerd", started(1), "pid:[1]",
			inDocker("pod0123456789abcdef0123456789abcdef/"), "restart: /etc/kubernetes/scheduler.conf changed",
		},
		{"a container of Docker", "it is of no pod", started(1), "pid:[1]", inDocker(""), ""},
		{
			"an ordinary pod with Docker", "its user chose the command", started(1), "pid:[1]",
			inDocker("pod1f0e6b4c-7d2a-4e8f-9a3b-0c1d2e3f4a5b/"), "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t)
			o := scheduler(h)
			h.write("etc/kubernetes/scheduler.conf", "one")
			h.pod(77, tc.stat, tc.ns)
			tc.change(h)
			if r := h.check(o)[0]; r.Summary != tc.want || r.Error != nil {
				t.Errorf("%+v, want %q: %s", r, tc.want, tc.reason)
			}
		})
	}
}

// TestStaticPodRestart_NeedsCommandForUnusualManifest checks that the operation must name
// the command if the manifest is not in the form that kubeadm uses.
func TestStaticPodRestart_NeedsCommandForUnusualManifest(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := scheduler(h)
	h.write("etc/kubernetes/scheduler.conf", "one")
	h.pod(77, started(1), "pid:[1]")
	h.write(schedulerManifest, "spec: {containers: [{command: [kube-scheduler, --kubeconfig=/etc/kubernetes/scheduler.conf]}]}\n")
	if r := h.check(o)[0]; r.Error == nil {
		t.Errorf("its command is unknown: %+v", r)
	}
	o.Command = []string{"kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf"}
	if r := h.check(o)[0]; r.Summary != "restart: /etc/kubernetes/scheduler.conf changed" || r.Error != nil {
		t.Errorf("%+v", r)
	}
	o.Command[1] = "--kubeconfig=/etc/other.conf"
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("it restarts for another command: %+v", r)
	}
}

// TestStaticPodRestart_IsPlannedForFileAboutToChange checks that a plan restarts the program for a file that is about
// to be renewed.
func TestStaticPodRestart_IsPlannedForFileAboutToChange(t *testing.T) {
	t.Parallel()
	h := withCertificates(t, time.Hour)
	o := scheduler(h)
	o.Files = []string{"/etc/kubernetes/admin.conf"}
	h.pod(77, started(1<<33), "pid:[1]")
	if r := h.check(underCA("/etc/kubernetes/admin.conf", ""), o); r[1].Summary != "restart: /etc/kubernetes/admin.conf changed" {
		t.Errorf("%+v", r)
	}
	h.write("etc/kubernetes/scheduler.conf", "as it is")
	for content, want := range map[string]string{"as it is": "", "another": "restart: /etc/kubernetes/scheduler.conf changed"} {
		if r := h.check(op.File{Path: "/etc/kubernetes/scheduler.conf", Content: []byte(content)}, scheduler(h)); r[1].Summary != want {
			t.Errorf("with %q in the file it says %q, want %q", content, r[1].Summary, want)
		}
	}
}

// startProcess starts a process that does nothing, and returns its stat line from the
// kernel.
func startProcess(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, string(stat)
}

// TestStaticPodRestart_TerminatesAndAwaitsSuccessor checks that the program receives a signal to end once, and that its
// successor is awaited.
func TestStaticPodRestart_TerminatesAndAwaitsSuccessor(t *testing.T) {
	t.Parallel()
	restarted(t, false, "signal: terminated")
}

// TestStaticPodRestart_KillsProgramIfAtOnce checks that AtOnce kills the program.
func TestStaticPodRestart_KillsProgramIfAtOnce(t *testing.T) { restarted(t, true, "signal: killed") }

func restarted(t *testing.T, atOnce bool, ends string) {
	t.Helper()
	h := newHost(t)
	o := scheduler(h)
	o.AtOnce = atOnce
	first, stat := startProcess(t)
	h.pod(first.Process.Pid, stat, "pid:[1]")
	h.write("etc/kubernetes/scheduler.conf", "renewed")
	done := make(chan error)
	go func() { // the kubelet
		err := first.Wait()
		if rerr := os.RemoveAll(h.path(fmt.Sprintf("proc/%d", first.Process.Pid))); rerr != nil {
			err = rerr
		}
		h.pod(77, started(1<<33), "pid:[1]")
		done <- err
	}()
	if r := h.apply(o)[0]; r.Status != op.Changed {
		t.Errorf("%+v", r)
	}
	if err := <-done; err == nil || err.Error() != ends {
		t.Errorf("the program before ended with %v", err)
	}
	if r := h.check(o)[0]; r.Status != op.Unchanged {
		t.Errorf("restarted, it says %+v", r)
	}
}

// TestStaticPodRestart_WaitsForEndOfOtherProgram checks that the program gets a signal only
// after the program on which it depends has ended.
func TestStaticPodRestart_WaitsForEndOfOtherProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := scheduler(h)
	o.AfterEnd, o.AtOnce = "etcd", true
	first, stat := startProcess(t)
	h.pod(78, started(1), "pid:[1]")
	h.write("proc/78/cmdline", "/usr/local/bin/etcd\x00--name=a\x00")
	h.pod(first.Process.Pid, stat, "pid:[1]")
	h.write("etc/kubernetes/scheduler.conf", "renewed")
	ended, tooEarly := make(chan error, 1), make(chan bool, 1)
	go func() { ended <- first.Wait() }()
	go func() { // the kubelet
		select {
		case err := <-ended:
			ended <- err
			tooEarly <- true
		case <-time.After(4 * health.ProbeEvery):
			tooEarly <- os.RemoveAll(h.path("proc/78")) != nil
		}
		err := <-ended
		_ = os.RemoveAll(h.path(fmt.Sprintf("proc/%d", first.Process.Pid)))
		h.pod(77, started(1<<33), "pid:[1]")
		ended <- err
	}()
	if r := h.apply(o)[0]; r.Status != op.Changed {
		t.Errorf("%+v", r)
	}
	if <-tooEarly {
		t.Error("it was signalled before the other program ended")
	}
	if err := <-ended; err == nil || err.Error() != "signal: killed" {
		t.Errorf("the program ended with %v", err)
	}
}

// TestStaticPodRestart_FailsIfOtherProgramRemains checks that nothing is signalled if the
// program on which it depends does not end.
func TestStaticPodRestart_FailsIfOtherProgramRemains(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := scheduler(h)
	o.AfterEnd, o.AtOnce, o.TimeoutSeconds = "etcd", true, 1
	first, stat := startProcess(t)
	h.pod(78, started(1), "pid:[1]")
	h.write("proc/78/cmdline", "/usr/local/bin/etcd\x00--name=a\x00")
	h.pod(first.Process.Pid, stat, "pid:[1]")
	h.write("etc/kubernetes/scheduler.conf", "renewed")
	if e := h.refuses(o); e.Reason != op.ReasonNotServing || !strings.Contains(e.Message, "etcd did not end within 1s") {
		t.Errorf("it says %+v", e)
	}
	if err := first.Process.Kill(); err != nil {
		t.Errorf("the program has ended: %v", err)
	}
	_ = first.Wait()
}

// TestStaticPodRestart_RestartsOnceDespiteClockAhead checks that a program is restarted only once, even if its file is
// newer than its start. A clock that was ahead may date the file, and would cause
// restarts for ever.
func TestStaticPodRestart_RestartsOnceDespiteClockAhead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := scheduler(h)
	first, stat := startProcess(t)
	h.pod(first.Process.Pid, stat, "pid:[1]")
	h.write("etc/kubernetes/scheduler.conf", "renewed")
	second, later := startProcess(t)
	done := make(chan error)
	go func() { // the kubelet
		_ = first.Wait()
		err := os.RemoveAll(h.path(fmt.Sprintf("proc/%d", first.Process.Pid)))
		h.write("etc/kubernetes/scheduler.conf", "of later than the other")
		h.pod(second.Process.Pid, later, "pid:[1]")
		done <- err
	}()
	if r := h.apply(o)[0]; r.Status != op.Changed {
		t.Errorf("%+v", r)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := errors.Join(second.Process.Kill(), second.Wait()); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the restarted program ended with %v", err)
	}
}

// TestStaticPodRestart_ReportsProgramThatDoesNotStart checks that a program that is not started again is reported.
func TestStaticPodRestart_ReportsProgramThatDoesNotStart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	o := scheduler(h)
	o.TimeoutSeconds = 1
	first, stat := startProcess(t)
	h.pod(first.Process.Pid, stat, "pid:[1]")
	h.write("etc/kubernetes/scheduler.conf", "renewed")
	done := make(chan error)
	go func() {
		err := first.Wait()
		if rerr := os.RemoveAll(h.path(fmt.Sprintf("proc/%d", first.Process.Pid))); rerr != nil {
			err = rerr
		}
		done <- err
	}()
	r := h.r.Apply(t.Context(), h.batch(o), nil)[0]
	<-done
	if r.Error == nil || r.Error.Reason != op.ReasonNotServing || !slices.Contains(strings.Fields(r.Error.Message), "kube-scheduler") {
		t.Errorf("%+v", r)
	}
}

// TestRestoreHost_RemovesRenewedAndRecreatedFiles checks that a restored host has no renewed or recreated files.
func TestRestoreHost_RemovesRenewedAndRecreatedFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("etc/systemd/system/kubelet.service", "[Service]\n")
	h.running(true)
	before := h.snapshot()
	made := op.Exec{
		Name: "make", Argv: []string{"/bin/cp", h.path("etc/hosts"), h.path("etc/admin.conf")},
		Creates: []string{"/etc/admin.conf"}, Declares: []string{"/etc/pki/*"},
	}
	h.apply(op.Dir{Path: "/var/lib/kubelet", Mode: 0o750, Exclusive: true}, op.Dir{Path: "/etc/pki"}, made)
	now := time.Now()
	ca := pkitest.NewAuthority(t, "kubernetes", now.Add(-24*time.Hour), now.Add(240*time.Hour))
	cert, key := ca.IssueCertificate(t, "admin", now.Add(time.Hour))
	h.write("etc/pki/ca.crt", ca.Cert)
	h.write("etc/pki/ca.key", ca.Key)
	h.write("etc/admin.conf", pkitest.MakeKubeconfig("https://api:6443", ca.Cert, "", cert, key))
	h.write("var/lib/kubelet/pki/kubelet.crt", cert)
	h.write("var/lib/kubelet/pki/kubelet.key", key)
	h.apply(op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: "/etc/admin.conf", CA: "/etc/pki/ca.crt"}, CAKey: "/etc/pki/ca.key", ValiditySeconds: 24 * 3600,
	}, op.RenewCertificate{
		CertificateFile: op.CertificateFile{Path: "/var/lib/kubelet/pki/kubelet.crt", Key: "/var/lib/kubelet/pki/kubelet.key"},
		Remade:          true, Unit: "kubelet.service", ValiditySeconds: 24 * 3600,
	})
	h.write("var/lib/kubelet/pki/kubelet.crt", "another")
	h.remove("etc/pki/ca.crt")
	h.remove("etc/pki/ca.key")
	h.apply(op.RestoreHost{})
	if d := cmp.Diff(before, h.snapshot()); d != "" {
		t.Errorf("put back, the host is another (-want +got):\n%s", d)
	}
}

// TestRestore_RemovesRenewedKubeletCredentials renews and removes credentials that the
// kubelet created. A restore leaves none of them, in any state of the directory before.
func TestRestore_RemovesRenewedKubeletCredentials(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testHost)
	}{
		{"missing directory", func(*testHost) {}},
		{"empty directory", func(h *testHost) { h.disk("var/lib/kubelet") }},
		{"directory with content", func(h *testHost) { h.write("var/lib/kubelet/pki/theirs.pem", "their key") }},
	} {
		for _, reset := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reset %t", c.name, reset), func(t *testing.T) {
				h := newHost(t)
				h.write("etc/systemd/system/kubelet.service", "[Service]\n")
				h.running(true)
				now := time.Now()
				ca := pkitest.NewAuthority(t, "kubernetes", now.Add(-24*time.Hour), now.Add(240*time.Hour))
				h.write("etc/pki/ca.crt", ca.Cert)
				h.write("etc/pki/ca.key", ca.Key)
				c.prepare(h)
				before := h.outside()
				h.apply(op.Dir{Path: "/var/lib/kubelet", Mode: 0o750, Exclusive: true, Shared: []string{"pki", "pods"}})
				cert, key := ca.IssueCertificate(t, "system:node:cp1", now.Add(time.Hour))
				h.write("var/lib/kubelet/pki/kubelet-client-1.pem", cert+key)
				if err := os.Symlink("kubelet-client-1.pem", h.path(kubeletPEM)); err != nil {
					t.Fatal(err)
				}
				h.write("var/lib/kubelet/pki/kubelet.crt", cert)
				h.write("var/lib/kubelet/pki/kubelet.key", key)
				renew := op.RenewCertificate{
					CertificateFile: op.CertificateFile{Path: kubeletPEM, Key: kubeletPEM, CA: "/etc/pki/ca.crt"}, CAKey: "/etc/pki/ca.key",
					ValiditySeconds: 24 * 3600, Unit: "kubelet.service",
				}
				remade := op.RenewCertificate{
					CertificateFile: op.CertificateFile{Path: "/var/lib/kubelet/pki/kubelet.crt", Key: "/var/lib/kubelet/pki/kubelet.key"},
					Remade:          true, Unit: "kubelet.service", ValiditySeconds: 24 * 3600,
				}
				link := op.RenewCertificate{
					CertificateFile: op.CertificateFile{Path: kubeletPEM},
					Remade:          true, Unit: "kubelet.service", ValiditySeconds: 1,
				}
				for _, o := range []op.Op{renew, remade, link} {
					if r := h.apply(o)[0]; r.Status != op.Changed {
						t.Fatalf("%+v", r)
					}
				}
				h.write("var/lib/kubelet/pki/kubelet-client-2.pem", cert+key)
				if reset {
					h.apply(op.Reset{Paths: []string{"/var/lib/kubelet"}})
				}
				r := h.apply(op.RestoreHost{})[0]
				if d := cmp.Diff(before, h.outside()); d != "" {
					t.Errorf("after the restore (%s) the host is another (-want +got):\n%s", r.Output, d)
				}
			})
		}
	}
}
