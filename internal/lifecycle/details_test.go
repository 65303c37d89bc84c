package lifecycle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// hooked describes a cluster with a script that runs on every host first.
func (w *world) hooked() *v1alpha1.Cluster {
	script := filepath.Join(w.home, "hook.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n# canary-script\n"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	c := w.Manifest()
	c.Spec.Hooks = []v1alpha1.Hook{{Name: "prepare", Phase: v1alpha1.HookPreInstall, Script: script}}
	return c
}

// A hook that succeeded does not run again in a resume or a repeated apply, unless its
// host was reinstalled or reset since.
func TestHooks_RunOncePerHostInRepeatedAttempts(t *testing.T) {
	t.Parallel()
	const hook = "hook-preInstall-prepare"
	broken := func(t *testing.T) *world {
		w := newWorld(t, "cp1", "w1")
		w.Hosts["cp1"].Refuse = breaking("kubeadm.init.certs")
		w.do(creating(w.hooked()), event.Failed)
		w.Hosts["cp1"].Refuse = nil
		return w
	}
	want := func(t *testing.T, w *world, n int, why string) {
		t.Helper()
		for name, m := range w.Hosts {
			if m.HookRuns[hook] != n {
				t.Errorf("the hook ran %d times on %s, want %d: %s", m.HookRuns[hook], name, n, why)
			}
		}
	}
	t.Run("resume", func(t *testing.T) {
		w := broken(t)
		w.resume(event.Succeeded)
		want(t, w, 1, "the hook succeeded in the first attempt")
		w.do(applying(w.hooked()), event.Succeeded)
		want(t, w, 1, "an apply installs nothing")
	})
	t.Run("apply", func(t *testing.T) {
		w := broken(t)
		w.do(applying(w.hooked()), event.Succeeded)
		want(t, w, 1, "it is the same attempt")
	})
	t.Run("on a reinstalled machine", func(t *testing.T) {
		w := broken(t)
		m := w.Hosts["w1"]
		m.Files, m.State, m.HasLedger, m.Cluster = map[string]string{}, map[string]string{}, false, ""
		w.resume(event.Succeeded)
		if cp1, w1 := w.Hosts["cp1"].HookRuns[hook], m.HookRuns[hook]; cp1 != 1 || w1 != 2 {
			t.Errorf("the hook ran %d times on cp1, and %d times on the reinstalled w1", cp1, w1)
		}
	})
	t.Run("on a reset machine", func(t *testing.T) {
		w := newWorld(t, "cp1", "w1")
		c := w.hooked()
		c.Spec.Hooks[0].Phase = v1alpha1.HookPreDelete
		w.do(creating(c), event.Succeeded)
		w.Hosts["cp1"].Refuse = breaking("reset.restore")
		w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Failed)
		w.Hosts["cp1"].Refuse = nil
		w.resume(event.Succeeded)
		w.bare()
		for name, m := range w.Hosts {
			if n := m.HookRuns["hook-preDelete-prepare"]; n != 1 {
				t.Errorf("the hook ran %d times on %s", n, name)
			}
		}
	})
	t.Run("after a rollback that failed", func(t *testing.T) {
		w := broken(t)
		w.Hosts["w1"].Refuse = breaking("reset.restore")
		w.rollback(event.Failed)
		w.Hosts["w1"].Refuse = nil
		w.do(applying(w.hooked()), event.Succeeded)
		for host, n := range map[string]int{"cp1": 2, "w1": 1} {
			if got := w.Hosts[host].HookRuns[hook]; got != n {
				t.Errorf("the hook ran %d times on %s, want %d: cp1 was reset, w1 was not", got, host, n)
			}
		}
	})
}

// The hooks of a host run when it is added and when it is removed, not on other hosts.
// They run once, even if the operation is interrupted at any moment.
func TestHooks_RunOnceOnAddedAndRemovedHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	phases := []v1alpha1.HookPhase{v1alpha1.HookPreInstall, v1alpha1.HookPostControlPlane, v1alpha1.HookPostInstall, v1alpha1.HookPreDelete}
	script := filepath.Join(w.home, "hook.sh")
	described := func(w *world) *v1alpha1.Cluster {
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := w.Manifest()
		for _, phase := range phases {
			c.Spec.Hooks = append(c.Spec.Hooks, v1alpha1.Hook{Name: "x", Phase: phase, Script: script})
		}
		c.Spec.Hooks = append(c.Spec.Hooks,
			v1alpha1.Hook{Name: "etcd", Phase: v1alpha1.HookPreInstall, Script: script, Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}})
		for i := range c.Spec.Hooks[1:4] {
			c.Spec.Hooks[i+1].Name += strings.ToLower(string(c.Spec.Hooks[i+1].Phase))
		}
		return c
	}
	ran := func(t *testing.T, w *world, host string, want map[string]int) {
		t.Helper()
		if d := cmp.Diff(want, w.Hosts[host].HookRuns); d != "" {
			t.Errorf("on %s (-want +got):\n%s", host, d)
		}
	}
	before := map[string]int{
		"hook-preInstall-x": 1, "hook-preInstall-etcd": 1,
		"hook-postControlPlane-xpostcontrolplane": 1, "hook-postInstall-xpostinstall": 1,
	}
	came := map[string]int{"hook-preInstall-x": 1, "hook-postControlPlane-xpostcontrolplane": 1, "hook-postInstall-xpostinstall": 1}
	w.do(creating(described(w)), event.Succeeded)
	ran(t, w, "cp1", before)
	w.Hosts["w1"] = lifecycletest.NewHost("w1", "192.0.2.31", w.API)
	c := described(w)
	for _, m := range w.killed(t, applying(c)) {
		t.Run(m.name, func(t *testing.T) {
			k := m.world
			k.useT(t)
			k.goOn(applying(c))
			ran(t, k, "cp1", before)
			ran(t, k, "w1", came)
		})
	}
	ran(t, w, "cp1", before)
	ran(t, w, "w1", came)
	w.settled(c)
	m := w.Hosts["w1"]
	delete(w.Hosts, "w1")
	c = described(w)
	w.Hosts["w1"] = m
	w.do(applying(c), event.Succeeded)
	ran(t, w, "cp1", before)
	came["hook-preDelete-xpredelete"] = 1
	ran(t, w, "w1", came)
}

// TestSavedOperations_ContainNoSecrets looks for secrets in all saved operations, and for files that
// other users can read.
func TestSavedOperations_ContainNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	c := w.hooked()
	c.Spec.SSH.Password = "canary-password"
	token := ""
	w.Hosts["w1"].OnChange = func(what string) {
		if strings.HasPrefix(what, "join.kubelet-start") {
			token = w.API.JoinTokens()[0]
		}
	}
	w.do(CreateRequest{Subject: Subject{Cluster: c, Source: []byte("password: canary-password\n")}}, event.Succeeded)
	if token == "" {
		t.Fatal("no node joined with a token")
	}
	err := filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if fi, err := d.Info(); err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s may be read by others (%v)", path, err)
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(path, "/operations/") {
			return err
		}
		for _, secret := range []string{token, lifecycletest.AdminSecret(), "canary-password", "canary-script"} {
			for _, form := range []string{
				secret, base64.StdEncoding.EncodeToString([]byte(secret))[:len(secret)],
				hex.EncodeToString([]byte(secret)),
			} {
				if i := bytes.Index(content, []byte(form)); i >= 0 {
					t.Errorf("%s holds a secret: …%s…", path, content[max(0, i-100):i+len(form)])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The cluster file may omit addresses that only the hosts know, also in later operations.
func TestInternalAddresses_AreSavedForLaterOperations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		change       func(*world, *v1alpha1.Cluster)
		want         []string // internal addresses
	}{
		{"names", "hosts reach each other by their own addresses", func(_ *world, c *v1alpha1.Cluster) {
			c.Spec.Hosts[0].Address, c.Spec.Hosts[1].Address = "cp1.example.com", "w1.example.com"
		}, []string{"192.0.2.11", "192.0.2.12"}},
		{"this host", "a single host", func(w *world, c *v1alpha1.Cluster) {
			c.Spec.Hosts = c.Spec.Hosts[:1]
			c.Spec.Hosts[0].Address = "localhost"
			delete(w.Hosts, "w1")
		}, []string{"192.0.2.11"}},
		{"ports of one address", "the hosts are behind a router", func(_ *world, c *v1alpha1.Cluster) {
			for i := range c.Spec.Hosts {
				h := &c.Spec.Hosts[i]
				h.InternalAddress, h.Address, h.SSH.Port = h.Address, "router.example.com", 2201+i
			}
		}, []string{"192.0.2.11", "192.0.2.12"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			c := w.Manifest()
			tc.change(w, c)
			w.do(creating(c), event.Succeeded)
			recorded, err := w.service().Records.Clusters().Load(t.Context(), "prod")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range recorded.Spec.Hosts {
				got = append(got, h.InternalAddress)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("internal addresses %v, want %v: %s", got, tc.want, tc.reason)
			}
			if res := w.do(applying(c), event.Succeeded); res.Operation != "" {
				t.Error("a second apply of the file changes something")
			}
		})
	}
}

// A bundle of another Kubernetes version is refused, and a precheck reports it together
// with unreachable hosts.
func TestBundle_IsRefusedIfItsVersionDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	c := w.Manifest()
	c.Spec.Kubernetes.Version = "v1.36.4"
	path, ok := bundle.FindCached(w.cache, "v1.37.1", []string{"amd64"})
	if !ok {
		t.Fatal("there is no bundle")
	}
	c.Spec.Bundle = path
	_, err := w.service().Prepare(t.Context(), creating(c), nil)
	refusal(t, err, idBundleVersion)

	w.Hosts["cp1"].Down = errDown
	list, err := w.service().Precheck(t.Context(), applying(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	if want := []string{string(remote.Unreachable), idBundleVersion}; !slices.Equal(ids, want) {
		t.Errorf("findings %v, want %v: hosts and bundle in one report", ids, want)
	}
}

// If the file names the keys of bundles, a bundle without a valid signature is refused. No
// other bundle is built, and no host is changed.
func TestBundle_NeedsSignatureIfFileNamesKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	prefix := filepath.Join(t.TempDir(), "release")
	key, err := bundle.GenerateKey(prefix)
	if err != nil {
		t.Fatal(err)
	}
	private, err := bundle.ReadSigningKey(prefix + ".key")
	if err != nil {
		t.Fatal(err)
	}
	path, ok := bundle.FindCached(w.cache, "v1.37.1", []string{"amd64"})
	if !ok {
		t.Fatal("there is no bundle")
	}
	// Other tests use the cache of the world, too.
	w.cache = t.TempDir()
	own, err := bundle.Import(t.Context(), path, w.cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{"", own.Path()} {
		c := w.Manifest()
		c.Spec.BundleKeys, c.Spec.Bundle = []string{key.String()}, named
		for _, r := range []Request{creating(c), applying(c)} {
			_, err := w.service().Prepare(t.Context(), r, nil)
			refusal(t, err, bundle.IDUnsigned)
		}
	}
	if m := w.Hosts["cp1"]; len(m.Files) != 0 {
		t.Errorf("refused, but files were written: %v", m.Files)
	}
	if _, err := bundle.Sign(t.Context(), own.Path(), w.cache, private, bundle.Registry{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	c := w.Manifest()
	c.Spec.BundleKeys = []string{key.String()}
	w.do(creating(c), event.Succeeded)
	other, err := bundle.GenerateKey(prefix + "2")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.BundleKeys = []string{other.String()}
	_, err = w.service().Prepare(t.Context(), applying(c), nil)
	refusal(t, err, bundle.IDUnsigned)
	w.do(DeleteRequest{Subject: Subject{Name: "prod"}}, event.Succeeded)
}

// A bundle that is named only at creation is used for the cluster from then on.
func TestBundle_IsKeptIfLaterFileOmitsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	path, ok := bundle.FindCached(w.cache, "v1.37.1", []string{"amd64"})
	if !ok {
		t.Fatal("there is no bundle")
	}
	named := w.Manifest()
	named.Spec.Bundle = path
	w.do(creating(named), event.Succeeded)
	p, err := w.service().Prepare(t.Context(), applying(w.Manifest()), nil)
	p = w.prepared(p, err)
	if got := p.Plan(); got.Bundle.Source != path || len(got.Steps) > 0 {
		t.Errorf("the file names no bundle; its plan uses %+v with %d steps", got.Bundle, len(got.Steps))
	}
	for _, tt := range []struct {
		name, reason, version, recorded, want string
	}{
		{"moved", "a missing bundle cannot be used; the cache may have it", "", "/none/b.tar.zst", ""},
		{"reference", "the registry is queried later", "", "registry.example.com/b:v1.37.1", "registry.example.com/b:v1.37.1"},
		{"other version", "the saved bundle has the old version", "v1.36.4", path, ""},
	} {
		recorded, c := w.Manifest(), w.Manifest()
		recorded.Spec.Kubernetes.Version, recorded.Spec.Bundle, c.Spec.Kubernetes.Version = "v1.37.1", tt.recorded, tt.version
		if got := w.service().complete(c, recorded).Spec.Bundle; got != tt.want {
			t.Errorf("%s: bundle %q, want %q: %s", tt.name, got, tt.want, tt.reason)
		}
	}
}

// A failed preparation of hosts can be resumed; it takes no lock and saves no cluster.
func TestInitOS_CanBeResumedButNotRolledBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.Hosts["w1"].Refuse = breaking("os.kernel")
	w.do(InitOSRequest{Subject: Subject{Cluster: w.Manifest()}}, event.Failed)
	w.wantStatus("", "init-os Failed")
	_, err := w.service().PrepareRollback(t.Context(), rollingBack(), nil)
	refusal(t, err, idNoWayBack)
	w.Hosts["w1"].Refuse = nil
	w.resume(event.Succeeded)
	w.wantStatus("", "init-os Succeeded")
	m := w.Hosts["cp1"]
	if d := cmp.Diff([]string{"/etc/sysctl.d/90-slipway.conf"}, slices.Collect(maps.Keys(m.Files))); m.Lock.Highest != 0 || d != "" {
		t.Errorf("preparing hosts locks or installs something: %+v %v", m.Lock, m.Files)
	}
	w.create(event.Succeeded)
	w.whole()
}

// Preparing hosts is not an operation of the cluster. To continue, the user prepares them
// again.
func TestInitOS_NotAnOperationOfTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	prepared := w.Manifest()
	prepared.Spec.System.Sysctls = map[string]string{"vm.max_map_count": "300000"}
	w.Hosts["w1"].Refuse = breaking("os.kernel")
	w.do(InitOSRequest{Subject: Subject{Cluster: prepared}}, event.Failed)
	for _, prepare := range []func() (Prepared, error){
		func() (Prepared, error) { return w.service().PrepareResume(t.Context(), resuming(), nil) },
		func() (Prepared, error) { return w.service().PrepareRollback(t.Context(), rollingBack(), nil) },
	} {
		_, err := prepare()
		refusal(t, err, idNothingUnfinished)
		var list diag.List
		if !errors.As(err, &list) || !strings.Contains(list[0].Hint, "slipway init os -f FILE") {
			t.Errorf("%v has no hint how to continue", err)
		}
	}
	w.Hosts["w1"].Refuse = nil
	w.do(InitOSRequest{Subject: Subject{Cluster: prepared}}, event.Succeeded)
	w.wantPhase(v1alpha1.PhaseRunning)
}

// A missing hook script is refused, and a check that fails on a host names the host and
// the file.
func TestPrepare_RefusesMissingScriptAndDamagedCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	c := w.hooked()
	if err := os.Remove(c.Spec.Hooks[0].Script); err != nil {
		t.Fatal(err)
	}
	_, err := w.service().Prepare(t.Context(), creating(c), nil)
	refusal(t, err, "file-missing")

	c = w.hooked()
	w.do(creating(c), event.Succeeded)
	w.Hosts["cp1"].Files["/etc/kubernetes/pki/ca.crt"] = "damaged"
	_, err = w.service().Prepare(t.Context(), applying(c), nil)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != idCheckFailed || list[0].Host != "cp1" || !strings.Contains(list[0].Message, "ca.crt") {
		t.Errorf("got %v, want a failed check that names host and file", err)
	}
}

// Without a kubeconfig of the cluster, kubectl would use the API of another cluster.
func TestKubectl_RefusesClusterWithoutKubeconfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.Hosts["cp1"].Refuse = breaking("kubeadm.init.certs")
	w.create(event.Failed)
	_, _, err := w.service().Kubeconfig(t.Context(), "prod", false)
	refusal(t, err, "no-kubeconfig")
	_, err = w.service().Kubectl(t.Context(), "prod", []string{"get", "nodes"}, nil, io.Discard, io.Discard)
	refusal(t, err, "no-kubeconfig")
}

// The error has the file that cannot be used, and a remedy.
func TestKubeconfig_ExplainsUnreadableFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	w.create(event.Succeeded)
	delete(w.Hosts["cp1"].Files, "/etc/kubernetes/admin.conf")
	_, _, err := w.service().Kubeconfig(t.Context(), "prod", true)
	var list diag.List
	if !errors.As(err, &list) || list[0].ID != "no-kubeconfig" || list[0].Host != "cp1" ||
		!strings.Contains(list[0].Message, "admin.conf does not exist") || list[0].Hint == "" {
		t.Errorf("no file on the host: %v", err)
	}
	saved := w.service().Records.Kubeconfigs().Location("prod")
	if err := errors.Join(os.Remove(saved), os.Mkdir(saved, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, live := range []bool{false, true} {
		_, _, err = w.service().Kubeconfig(t.Context(), "prod", live)
		if !errors.As(err, &list) || list[0].ID != "record-damaged" || !strings.Contains(list[0].Message, saved) ||
			!strings.Contains(list[0].Hint, "move "+saved+" away") {
			t.Errorf("a directory in place of the saved file (live: %t): %v", live, err)
		}
	}
}

func TestQueries_ReturnSavedDataOrNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	res := w.create(event.Succeeded)
	s, ctx := w.service(), t.Context()
	list, err := s.Clusters(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "prod" || list[0].Hosts != 2 || list[0].Ready != 2 ||
		list[0].Endpoint != "192.0.2.11:6443" || list[0].Kubernetes != "v1.37.1" || list[0].Operation.Name != res.Operation {
		t.Errorf("clusters %+v, %v", list, err)
	}
	kept, _, err := s.Kubeconfig(ctx, "prod", false)
	if err != nil || !bytes.Contains(kept, []byte("https://192.0.2.11:6443")) ||
		!bytes.Contains(kept, []byte("tls-server-name: example.com")) {
		t.Errorf("kubeconfig %s, %v", kept, err)
	}
	live, _, err := s.Kubeconfig(ctx, "prod", true)
	if err != nil || !bytes.Equal(live, kept) {
		t.Errorf("live kubeconfig %s, %v", live, err)
	}
	n := 0
	if err := s.Events(ctx, res.Operation[:len(res.Operation)-1], true, func(event.Event) error { n++; return nil }); err != nil ||
		n != len(w.events) {
		t.Errorf("%d events of %d, %v", n, len(w.events), err)
	}
	for what, err := range map[string]error{
		"cluster":         second(s.Cluster(ctx, "other")),
		"operation":       second(s.Operation(ctx, "other")),
		"kubeconfig":      third(s.Kubeconfig(ctx, "other", false)),
		"live kubeconfig": third(s.Kubeconfig(ctx, "other", true)),
		"events":          s.Events(ctx, "other", false, nil),
	} {
		if !errors.Is(err, savedstate.ErrNotFound) {
			t.Errorf("%s of nothing: %v, want savedstate.ErrNotFound", what, err)
		}
	}
}

// TestOperations_ListedWithDamagedRecord checks that an ambiguous id is refused. A damaged record is
// reported as a warning, and the other records are listed.
func TestOperations_ListedWithDamagedRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1")
	first := w.create(event.Succeeded)
	w.do(applying(w.changed()), event.Succeeded)
	s, ctx := w.service(), t.Context()
	refusal(t, second(s.Operation(ctx, "")), idAmbiguous)
	refusal(t, s.Events(ctx, "", false, nil), idAmbiguous)
	file := filepath.Join(w.home, "operations", first.Operation, "operation.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var heard diag.List
	s.View.Warn = func(l diag.List) { heard = append(heard, l...) }
	ops, err := s.Operations(ctx, "")
	if err != nil || len(ops) != 1 || ops[0].Name == first.Operation {
		t.Errorf("operations %v, %v; want the undamaged one", ops, err)
	}
	if len(heard) != 1 || heard[0].Severity != diag.Warning || !strings.Contains(heard[0].Message, file) {
		t.Errorf("warnings %v, want one about %s", heard, file)
	}
	if list, err := s.Clusters(ctx); err != nil || len(list) != 1 {
		t.Errorf("clusters %v, %v", list, err)
	}
}

// TestClusters_ListedWithDamagedRecord: a cluster with a damaged record is reported with a remedy. The
// other clusters are listed.
func TestClusters_ListedWithDamagedRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	w.create(event.Succeeded)
	for file, content := range map[string]string{
		"clusters/edge/cluster.json": "{", "clusters/lab/cluster.json": "{}", "clusters/lab/status.json": `{"phase":`,
	} {
		file = filepath.Join(w.home, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.service().Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		said := "whole"
		if c.Problem != nil {
			said = c.Problem.ID
			if !strings.Contains(c.Problem.Message, "clusters/"+c.Name+"/") || c.Problem.Hint == "" {
				t.Errorf("%s: %v, want the file and a remedy", c.Name, c.Problem)
			}
		}
		got = append(got, c.Name+" "+said)
	}
	if d := cmp.Diff([]string{"edge record-damaged", "lab record-damaged", "prod whole"}, got); d != "" {
		t.Errorf("clusters (-want +got):\n%s", d)
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// toLock returns an operation on all machines that is about to take its lock.
func (w *world) toLock(r Request) hostLocks {
	p := w.service().start(r)
	p.env = module.Env{Cluster: w.Manifest()}
	for _, h := range p.env.Cluster.Spec.Hosts {
		p.hosts = append(p.hosts, &engine.Host{Host: h, Conn: &lifecycletest.Conn{Host: w.Hosts[h.Name]}})
	}
	return hostLocks{p}
}

// Joining control planes do not hold the lock yet. Other managers lock only the control
// planes of the running cluster and would not ask them.
func TestLock_WithoutJoiningControlPlanes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.Hosts["cp1"].Lock = remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 4}, Highest: 4}
	p := w.toLock(ApplyRequest{})
	p.recorded = w.Manifest()
	p.recorded.Spec.Hosts = p.recorded.Spec.Hosts[:1]
	p.recorded.Status.Phase = v1alpha1.PhaseRunning
	var locked *LockedError
	if _, err := p.lockHosts(t.Context(), "ours"); !errors.As(err, &locked) {
		t.Errorf("got %v, want a lock error: another manager holds the only control plane", err)
	}
}

// Permanently lost control planes that are being removed do not hold the lock. After a
// rescue the remaining ones are enough, unless another manager holds their lock.
func TestLock_WithoutLostControlPlanes(t *testing.T) {
	t.Parallel()
	theirs := remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 4}, Highest: 4}
	for _, tc := range []struct {
		name, reason string
		lock         remote.LockState // of the remaining control plane
		gone         []string
		fence        uint64 // 0: refused
	}{
		{"two are gone", "only the third control plane remains", remote.LockState{}, []string{"cp1", "cp3"}, 1},
		{"another manager works", "it holds the lock of the remaining control plane", theirs, []string{"cp1", "cp3"}, 0},
		{
			"another manager has worked", "its lock is stale",
			remote.LockState{Held: true, Stale: true, Holder: theirs.Holder, Highest: 4},
			[]string{"cp1", "cp3"},
			5,
		},
		{"one is gone", "another manager may hold the other unreachable one", remote.LockState{}, []string{"cp1"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "cp3", "w1")
			w.Hosts["cp1"].Down, w.Hosts["cp3"].Down = errDown, errDown
			w.Hosts["cp2"].Lock = tc.lock
			p := w.toLock(DeleteNodesRequest{Forget: true})
			for _, h := range p.env.Cluster.Spec.Hosts {
				if slices.Contains(tc.gone, h.Name) {
					p.env.Leaving = append(p.env.Leaving, module.LeavingHost{Host: h, IsLost: true})
				}
			}
			p.recorded = p.env.Cluster
			p.recorded.Status.Phase = v1alpha1.PhaseRunning
			hl, err := p.lockHosts(t.Context(), "ours")
			if (err == nil) != (tc.fence > 0) || err == nil && hl.Fence() != tc.fence {
				t.Errorf("got %+v, %v, want fence %d: %s", hl, err, tc.fence, tc.reason)
			}
		})
	}
}

// A manager that has lost the control planes may still work on other hosts. These refuse
// its changes once its lock is taken over.
func TestLock_WorkersRefusePreviousManager(t *testing.T) {
	t.Parallel()
	theirs := remote.LockState{Held: true, Stale: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 4}, Highest: 4}
	for _, tc := range []struct {
		name, reason string
		lock         remote.LockState // of the control planes
		breaking     bool
		refused      bool
	}{
		{"stale", "the lock has no heartbeat", theirs, false, true},
		{"broken", "the other manager may still work", remote.LockState{Highest: 4}, true, true},
		{"freed", "the other operation is complete", remote.LockState{Highest: 4}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "cp3", "w1", "w2")
			for _, cp := range []string{"cp1", "cp2", "cp3"} {
				w.Hosts[cp].Lock = tc.lock
			}
			w.Hosts["w1"].Lock.Highest = 4
			w.Hosts["w2"].Down = errDown
			hl, err := w.toLock(ApplyRequest{ApplyOptions: ApplyOptions{Options: Options{BreakLock: tc.breaking}}}).lockHosts(t.Context(), "ours")
			if err != nil {
				t.Fatal(err)
			}
			defer hl.Release(t.Context())
			late := remote.Batch{Operation: "theirs", Step: "os.files", Cluster: "prod", Fence: 4, Ops: op.List{op.File{Path: "/etc/theirs"}}}
			got, err := (&lifecycletest.Conn{Host: w.Hosts["w1"]}).Apply(t.Context(), late, nil)
			if refused := err == nil && got[0].Error != nil && got[0].Error.Reason == "Fenced"; refused != tc.refused {
				t.Errorf("got %+v, %v; refused %t, want %t: %s", got, err, refused, tc.refused, tc.reason)
			}
			if w.Hosts["w1"].Lock.Held {
				t.Error("a worker keeps the lock without a heartbeat")
			}
		})
	}
}

// TestLock_NotTakenByCopyOfState checks that a copy of the state directory cannot take over the lock,
// though it has the same manager id. A killed process of the same state directory does not
// block the next one.
func TestLock_NotTakenByCopyOfState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	first := w.toLock(ApplyRequest{})
	if _, err := first.lockHosts(t.Context(), "killed"); err != nil {
		t.Fatal(err)
	}
	second, err := w.toLock(ApplyRequest{}).lockHosts(t.Context(), "resumed")
	if err != nil {
		t.Fatalf("a killed process blocks the next one: %v", err)
	}
	if err := first.svc.Records.Locks().EndHold(t.Context(), "prod"); err != nil { // as in a copy that was made earlier
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := w.toLock(ApplyRequest{}).lockHosts(t.Context(), "copy"); !errors.As(err, &locked) {
		t.Errorf("a copy of the state took the lock over: %v", err)
	}
	second.Release(t.Context())
	third, err := w.toLock(ApplyRequest{}).lockHosts(t.Context(), "later")
	if err != nil {
		t.Fatal(err)
	}
	third.Release(t.Context())
}

// TestLock_BelongsToTheManager checks that a cluster of a management server is refused elsewhere, until it is taken over.
// The server is refused afterwards.
func TestLock_BelongsToTheManager(t *testing.T) {
	t.Parallel()
	const url, theirs = "https://slipway.example:7443", "0123456789abcdef0123456789abcdef"
	for _, tc := range []struct {
		name     string
		manager  remote.Manager
		server   string // that asks
		takeOver bool
		message  string // of the refusal; "" for none
		want     remote.Manager
	}{
		{name: "no server", want: remote.Manager{}},
		{
			name: "of a server", manager: remote.Manager{ID: theirs, Server: url},
			message: "the management server " + url + " manages cluster prod",
		},
		{name: "taken over", manager: remote.Manager{ID: theirs, Server: url}, takeOver: true, want: remote.Manager{ID: "ours"}},
		{
			name: "taken from the server", manager: remote.Manager{ID: theirs}, server: url,
			message: "a command line with other records manages cluster prod",
		},
		{name: "by a server", server: url, want: remote.Manager{ID: "ours", Server: url}},
		{
			name: "of this manager", manager: remote.Manager{ID: "ours", Server: "https://old"}, server: url,
			want: remote.Manager{ID: "ours", Server: url},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "w1")
			p := w.toLock(ApplyRequest{ApplyOptions: ApplyOptions{Options: Options{TakeOver: tc.takeOver}}})
			p.svc.Server = tc.server
			ours, err := p.svc.Records.ManagerID(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			named := func(m remote.Manager) remote.Manager {
				if m.ID == "ours" {
					m.ID = ours
				}
				return m
			}
			if w.Hosts["cp1"].Lock.Manager = named(tc.manager); tc.manager.ID != "" {
				w.Hosts["cp1"].Lock.Manager.Fence, w.Hosts["cp1"].Lock.Highest = 3, 3
			}
			hl, err := p.lockHosts(t.Context(), "create-1")
			if tc.message != "" {
				refusal(t, err, "other-manager")
				if !strings.Contains(err.Error(), tc.message) {
					t.Errorf("got %v, want %s", err, tc.message)
				}
				if st := w.Hosts["cp1"].Lock; st.Held || st.Highest != 3 {
					t.Errorf("a refusal changed the lock: %+v", st)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer hl.Release(t.Context())
			st := w.Hosts["cp1"].Lock
			got := remote.Manager{ID: st.Manager.ID, Server: st.Manager.Server}
			if got != named(tc.want) {
				t.Errorf("manager %+v, want %+v", st.Manager, tc.want)
			}
			if w.Hosts["w1"].Lock.Manager != (remote.Manager{}) {
				t.Error("a worker has a manager, which a later takeover does not change")
			}
			if tc.server != "" && !strings.HasPrefix(st.Holder.By, "management server "+tc.server+", ") {
				t.Errorf("holder %s", st.Holder.By)
			}
		})
	}
}

// TestLock_ManagerOfMostRecentTakeover has control planes that were not reachable during a takeover, and a takeover without
// a majority.
func TestLock_ManagerOfMostRecentTakeover(t *testing.T) {
	t.Parallel()
	const url = "https://slipway.example:7443"
	w := newWorld(t, "cp1", "cp2", "cp3", "w1")
	take := func(server string, takeOver bool) error {
		p := w.toLock(ApplyRequest{ApplyOptions: ApplyOptions{Options: Options{TakeOver: takeOver}}})
		p.svc.Server = server
		hl, err := p.lockHosts(t.Context(), "op")
		if err == nil {
			hl.Release(t.Context())
		}
		return err
	}
	theirs := remote.Manager{ID: "0123456789abcdef0123456789abcdef", Server: url, Fence: 2}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		w.Hosts[name].Lock.Manager, w.Hosts[name].Lock.Highest = theirs, 2
	}
	w.Hosts["cp2"].Down, w.Hosts["cp3"].Down = errDown, errDown
	if err := take("", true); err == nil {
		t.Fatal("one of three control planes is enough for a takeover")
	}
	if is := w.Hosts["cp1"].Lock.Manager; is != theirs {
		t.Errorf("a failed takeover has left manager %+v", is)
	}
	w.Hosts["cp2"].Down = nil
	if err := take("", true); err != nil {
		t.Fatal(err)
	}
	w.Hosts["cp3"].Down = nil // it still has the server
	if err := take("", false); err != nil {
		t.Errorf("after the takeover: %v", err)
	}
	if is := w.Hosts["cp3"].Lock.Manager; is == theirs {
		// It is written when the manager changes. Until then, its number is lower.
		if got := w.Hosts["cp1"].Lock.Manager; got.Fence <= is.Fence || got.Server != "" {
			t.Errorf("the takeover has manager %+v", got)
		}
	}
}

// TestLock_NeedsMajorityOfControlPlanes checks the lock on three control planes.
func TestLock_NeedsMajorityOfControlPlanes(t *testing.T) {
	t.Parallel()
	theirs := remote.LockState{Held: true, Holder: remote.Lock{Operation: "theirs", Manager: "m2", Fence: 4}, Highest: 4}
	for _, tc := range []struct {
		name, reason string
		change       func(map[string]*lifecycletest.Host)
		breaking     bool
		fence        uint64 // 0: refused
		locked       bool
	}{
		{
			"all answer", "the fence is above all previous ones",
			func(m map[string]*lifecycletest.Host) { m["cp2"].Lock.Highest = 6 }, false, 7, false,
		},
		{"one is down", "two are a majority", func(m map[string]*lifecycletest.Host) { m["cp3"].Down = errDown }, false, 1, false},
		{
			"two are down", "one is not a majority",
			func(m map[string]*lifecycletest.Host) {
				m["cp2"].Down, m["cp3"].Down = errDown, errDown
			}, false, 0, false,
		},
		{
			"two are down, with --break-lock", "the reachable ones are enough",
			func(m map[string]*lifecycletest.Host) {
				m["cp2"].Down, m["cp3"].Down = errDown, errDown
			}, true, 1, false,
		},
		{
			"one is locked", "the other manager may know no other control planes",
			func(m map[string]*lifecycletest.Host) { m["cp1"].Lock = theirs }, false, 0, true,
		},
		{
			"one is locked, with --break-lock", "--break-lock takes it",
			func(m map[string]*lifecycletest.Host) { m["cp1"].Lock = theirs }, true, 5, false,
		},
		{"one gets locked meanwhile", "the other manager was first", func(m map[string]*lifecycletest.Host) {
			m["cp2"].OnChange = func(string) { m["cp2"].Lock = theirs }
		}, false, 0, true},
		{"one has a stale lock", "a stale lock does not block", func(m map[string]*lifecycletest.Host) {
			m["cp2"].Lock = theirs
			m["cp2"].Lock.Stale = true
		}, false, 5, false},
		{
			"two are locked", "the other manager works on the cluster",
			func(m map[string]*lifecycletest.Host) { m["cp1"].Lock, m["cp2"].Lock = theirs, theirs }, false, 0, true,
		},
		{
			"two are locked, with --break-lock", "--break-lock takes them",
			func(m map[string]*lifecycletest.Host) { m["cp1"].Lock, m["cp2"].Lock = theirs, theirs }, true, 5, false,
		},
		{"two have stale locks", "their heartbeats have stopped", func(m map[string]*lifecycletest.Host) {
			m["cp1"].Lock, m["cp2"].Lock = theirs, theirs
			m["cp1"].Lock.Stale, m["cp2"].Lock.Stale = true, true
		}, false, 5, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, "cp1", "cp2", "cp3", "w1")
			tc.change(w.Hosts)
			p := w.toLock(ApplyRequest{ApplyOptions: ApplyOptions{Options: Options{BreakLock: tc.breaking}}})
			hl, err := p.lockHosts(t.Context(), "ours")
			var locked *LockedError
			switch {
			case tc.fence == 0 && (err == nil || errors.As(err, &locked) != tc.locked):
				t.Errorf("got %v: %s", err, tc.reason)
			case tc.fence > 0 && (err != nil || hl.Fence() != tc.fence):
				t.Fatalf("got %+v, %v, want fence %d: %s", hl, err, tc.fence, tc.reason)
			}
			if hl != nil {
				hl.Release(t.Context())
			}
			for name, m := range w.Hosts {
				if m.Lock.Holder.Operation == "ours" && m.Lock.Held {
					t.Errorf("%s still holds our lock", name)
				}
				if tc.locked && m.Lock.Highest > theirs.Highest {
					t.Errorf("%s would refuse its holder: its fence was raised to %d", name, m.Lock.Highest)
				}
			}
		})
	}
}
