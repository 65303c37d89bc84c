package lifecycle

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/clusterlock"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/move"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/records/recordstest"
	"slipway.dev/slipway/internal/remote"
)

// objects are Cluster objects in memory. A write fails if failing returns an error for it.
type objects struct {
	clusters map[string]*v1alpha1.Cluster
	secrets  map[string]map[string][]byte
	failing  func(write string) error
	// problem is the reason with which the controllers refuse objects, "" for none. withoutControllers: they do not run.
	problem            string
	withoutControllers bool
}

func (o *objects) fail(write string) error {
	if o.failing == nil {
		return nil
	}
	return o.failing(write)
}

func (o *objects) Load(_ context.Context, name string) (*v1alpha1.Cluster, error) {
	c := o.clusters[name].DeepCopy()
	switch {
	case c == nil || o.withoutControllers:
	case o.problem != "":
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: "Stalled", Status: metav1.ConditionTrue, Reason: "InvalidCluster", Message: o.problem,
		})
	case c.Spec.Paused:
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: "Paused", Status: metav1.ConditionTrue, Reason: "Paused"})
	}
	return c, nil
}

func (o *objects) Save(_ context.Context, c *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if err := o.fail("Save"); err != nil {
		return nil, err
	}
	if is := o.clusters[c.Name]; is != nil && is.ResourceVersion != c.ResourceVersion {
		return nil, errors.New("the object exists, or has another version")
	}
	c = c.DeepCopy()
	c.UID, c.ResourceVersion = "uid", c.ResourceVersion+"1"
	o.clusters[c.Name] = c
	return c.DeepCopy(), nil
}

func (o *objects) SaveFiles(_ context.Context, _ *v1alpha1.Cluster, name string, files map[string][]byte) error {
	if err := o.fail("SaveFiles"); err != nil {
		return err
	}
	o.secrets[name] = maps.Clone(files)
	return nil
}

func (o *objects) Patch(_ context.Context, name string, patch []byte) error {
	if err := o.fail("Patch"); err != nil {
		return err
	}
	var change struct {
		Metadata struct{ Annotations map[string]*string }
		Spec     map[string]any
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return err
	}
	c := o.clusters[name]
	for key, value := range change.Metadata.Annotations {
		if value == nil {
			delete(c.Annotations, key)
		}
	}
	c.Spec.Paused = change.Spec["paused"] == true
	c.Spec.DeletionPolicy = ""
	if policy, ok := change.Spec["deletionPolicy"].(string); ok {
		c.Spec.DeletionPolicy = v1alpha1.DeletionPolicy(policy)
	}
	return nil
}

// A moveTest moves a cluster from files to records in memory.
type moveTest struct {
	*world
	key     string // the path of the SSH key
	keyText []byte
	memory  *recordstest.Memory
	objects *objects
	faults  *recordstest.Faults
	logins  func(v1alpha1.Host) []remote.Decision
	ctx     context.Context // of the moves
}

const serverURL = "https://server.example.com:6443"

func newMoveTest(t *testing.T, hosts ...string) *moveTest {
	t.Helper()
	m := &moveTest{
		ctx: t.Context(), world: newWorld(t, hosts...), key: filepath.Join(t.TempDir(), "id"), memory: recordstest.NewMemory(t),
		objects: &objects{clusters: map[string]*v1alpha1.Cluster{}, secrets: map[string]map[string][]byte{}},
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	m.keyText = pem.EncodeToMemory(block)
	if err := os.WriteFile(m.key, m.keyText, 0o600); err != nil {
		t.Fatal(err)
	}
	m.do(creating(m.manifest()), event.Succeeded)
	return m
}

// manifest returns the cluster with a login.
func (m *moveTest) manifest() *v1alpha1.Cluster {
	c := m.Manifest()
	c.Spec.SSH.PrivateKeyFile = m.key
	return c
}

// move moves the cluster.
func (m *moveTest) move() error {
	svc := m.service()
	mover := move.New(move.Config{
		View: svc.View, Log: slog.New(slog.DiscardHandler),
		Dialer: hostconn.Dialer{Connect: m.Connect, KnownHosts: svc.Files.KnownHosts(), Home: m.home, Log: slog.New(slog.DiscardHandler)},
		Resolve: func(h v1alpha1.Host, _ remote.Options) (l remote.Login, err error) {
			if m.logins != nil {
				l.From = m.logins(h)
			}
			return l, nil
		},
		KnownKeys: func(h v1alpha1.Host, _ remote.Options) ([]string, error) {
			return []string{h.Address + " ssh-ed25519 AAAA"}, nil
		},
	})
	process := m.memory.Open()
	defer process.Kill()
	var to records.Backend = process
	if m.faults != nil {
		to = m.faults.Wrap(to)
	}
	return mover.Move(m.ctx, "prod", move.Target{Records: to, Objects: m.objects, Server: serverURL}, nil)
}

// server returns the service of the API, with the files of the object.
func (m *moveTest) server() *Service {
	m.t.Helper()
	dir := m.t.TempDir()
	for name, text := range m.objects.secrets["prod-files"] {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	svc := m.service()
	backend := m.memory.Open()
	files, err := backend.Files(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = files.Close() })
	config := svc.Config
	config.Records, config.Files, config.Home, config.Server = backend, files, dir, serverURL
	config.Object = &ClusterObject{ID: operation.ClusterID{UID: "uid"}, FilesDir: dir}
	return New(config)
}

// requireMoved checks that the API manages the cluster, and that the command line does not.
func (m *moveTest) requireMoved() {
	m.t.Helper()
	object := m.objects.clusters["prod"]
	if object.Spec.Paused || len(object.Annotations) > 0 || object.Spec.DeletionPolicy != "" {
		m.t.Errorf("the object is not released: paused %t, annotations %v, deletion policy %q",
			object.Spec.Paused, object.Annotations, object.Spec.DeletionPolicy)
	}
	if d := cmp.Diff(map[string]map[string][]byte{"prod-files": {"id": m.keyText}}, m.objects.secrets); d != "" {
		m.t.Errorf("Secrets (-want +got):\n%s", d)
	}
	c := object.DeepCopy()
	c.ObjectMeta = metav1.ObjectMeta{Name: "prod"}
	svc := m.server()
	request := applying(c)
	request.Dir = svc.Object.FilesDir
	p := m.prepared(svc.Prepare(m.t.Context(), request, nil))
	for _, step := range p.Plan().Steps { // the cluster has a copy of its description, with the names of files
		if step.Task != "record.cluster" {
			m.t.Errorf("the server has something to do after the move: %s on %s\n%v", step.Task, step.Host, step.Changes)
		}
	}
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(77)}
	m.apply(m.prepared(svc.Prepare(m.t.Context(), request, nil)), event.Succeeded)
	_, err := m.prepared(m.service().Prepare(m.t.Context(), applying(m.manifest()), nil)).Apply(m.t.Context())
	refusal(m.t.(*testing.T), err, "other-manager")
	if !strings.Contains(err.Error(), serverURL) {
		m.t.Errorf("the refusal does not name the server: %v", err)
	}
	keys, err := os.ReadFile(svc.Files.KnownHosts())
	if err != nil || strings.Count(string(keys), "ssh-ed25519 AAAA\n") != len(m.Hosts) {
		m.t.Errorf("host keys of the server: %v\n%s", err, keys)
	}
	if was, now := m.adminConf(m.service()), m.adminConf(svc); was != now {
		m.t.Error("the server has another kubeconfig")
	}
}

func (m *moveTest) adminConf(svc *Service) string {
	m.t.Helper()
	text, err := svc.Records.Kubeconfigs().Load(m.t.Context(), "prod")
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

func TestMove_ServerContinues(t *testing.T) {
	t.Parallel()
	m := newMoveTest(t, threeAndTwo...)
	for _, name := range records.ClusterFileNames() {
		if err := m.service().Records.ClusterFiles().Save(t.Context(), "prod", name, []byte("content of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	m.Hosts["cp3"].Down = errors.New("down")
	if err := m.move(); err != nil {
		t.Fatal(err)
	}
	m.Hosts["cp3"].Down = nil
	for _, name := range records.ClusterFileNames() {
		if text, err := m.memory.Open().ClusterFiles().Load(t.Context(), "prod", name); err != nil || string(text) != "content of "+name {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	m.requireMoved()
	refusal(t, m.move(), "move-cluster-exists")
}

// TestMove_CanBeRepeated interrupts a move at each write to the API.
func TestMove_CanBeRepeated(t *testing.T) {
	counted := newMoveTest(t, "cp1", "w1")
	counted.faults = recordstest.NewFaults(0, recordstest.Before)
	var writes []string
	counted.objects.failing = func(write string) error {
		writes = append(writes, write)
		return nil
	}
	if err := counted.move(); err != nil {
		t.Fatal(err)
	}
	if len(writes) != 3 || len(counted.faults.Writes()) < 6 {
		t.Fatalf("writes %v, %v", writes, counted.faults.Writes())
	}
	harmless := []string{"Locks.EndHold", "Lock.Release"} // a process that is listed, and a lock that expires
	retry := func(t *testing.T, m *moveTest, write string) {
		if err := m.move(); err == nil {
			if !slices.Contains(harmless, write) {
				t.Errorf("the fault of %s is not reported", write)
			}
			m.requireMoved()
			return
		}
		m.faults, m.objects.failing = nil, nil
		if object := m.objects.clusters["prod"]; object != nil && (!object.Spec.Paused || object.Spec.DeletionPolicy != v1alpha1.DeletionRetain) {
			t.Errorf("the object is not paused, or its deletion touches the hosts: %+v", object.Spec)
		}
		if err := m.move(); err != nil {
			t.Fatalf("the second attempt fails: %v", err)
		}
		m.requireMoved()
	}
	for _, write := range writes {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			m := newMoveTest(t, "cp1", "w1")
			m.objects.failing = func(is string) error {
				if is == write {
					return errors.New("the API has failed")
				}
				return nil
			}
			retry(t, m, write)
		})
	}
	for i, write := range counted.faults.Writes() {
		for _, kind := range []recordstest.Kind{recordstest.Before, recordstest.After} {
			t.Run(string(kind)+" "+write, func(t *testing.T) {
				t.Parallel()
				m := newMoveTest(t, "cp1", "w1")
				m.faults = recordstest.NewFaults(i+1, kind)
				retry(t, m, write)
			})
		}
	}
}

// TestMove_RepeatUsesNewDescription changes the cluster between two attempts.
func TestMove_RepeatUsesNewDescription(t *testing.T) {
	t.Parallel()
	m := newMoveTest(t, "cp1", "w1")
	m.objects.failing = func(write string) error {
		if write == "SaveFiles" {
			return errors.New("the API has failed")
		}
		return nil
	}
	var unfinished *move.UnfinishedError
	if err := m.move(); !errors.As(err, &unfinished) || errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want an UnfinishedError", err)
	}
	m.objects.failing = nil
	c := m.manifest()
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(66)}
	m.do(applying(c), event.Succeeded)
	if err := m.move(); err != nil {
		t.Fatal(err)
	}
	if is := m.objects.clusters["prod"].Spec.Kubernetes.Kubelet.Config["maxPods"]; fmt.Sprint(is) != "66" {
		t.Errorf("the object has maxPods %v, want 66", is)
	}
	saved, err := m.memory.Open().Clusters().Load(t.Context(), "prod")
	if err != nil || fmt.Sprint(saved.Spec.Kubernetes.Kubelet.Config["maxPods"]) != "66" {
		t.Errorf("the records have %v, want maxPods 66: %v", saved, err)
	}
}

// TestMove_RefusesResumedObject: the API can have newer records than the command line.
func TestMove_RefusesResumedObject(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*v1alpha1.Cluster){
		"resumed": func(c *v1alpha1.Cluster) { c.Spec.Paused = false },
		"applied": func(c *v1alpha1.Cluster) { c.Status.AppliedIntent = "hmac-sha256:00" },
		"deleted": func(c *v1alpha1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoveTest(t, "cp1", "w1")
			m.objects.failing = func(write string) error {
				if write == "Patch" {
					return errors.New("the API has failed")
				}
				return nil
			}
			if err := m.move(); err == nil {
				t.Fatal("the fault is not reported")
			}
			m.objects.failing = nil
			spoil(m.objects.clusters["prod"])
			refusal(t, m.move(), "move-cluster-exists")
			delete(m.objects.clusters, "prod")
			refusal(t, m.move(), "move-object-gone")
		})
	}
}

func TestMove_RefusesBadInput(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		spoil      func(m *moveTest)
	}{
		{"other object", "move-cluster-exists", func(m *moveTest) { m.objects.clusters["prod"] = m.manifest() }},
		{"missing key", "object-file-unreadable", func(m *moveTest) { _ = os.Remove(m.key) }},
		{"SSH configuration", "move-ssh-configuration", func(m *moveTest) {
			m.logins = func(h v1alpha1.Host) []remote.Decision {
				return []remote.Decision{{Setting: "key", By: remote.ByClusterFile}, {Setting: "user", By: "line 3 of ~/.ssh/config"}}
			}
		}},
		{"no login", "object-no-login", func(m *moveTest) {
			c := m.Manifest()
			m.do(applying(c), event.Succeeded)
		}},
		{"no majority", "no-lock-majority", func(m *moveTest) { m.Hosts["cp1"].Down = errors.New("down") }},
		{"other manager", "other-manager", func(m *moveTest) {
			m.Hosts["cp1"].Lock.Manager = remote.Manager{ID: "0123456789abcdef0123456789abcdef", Fence: 99}
		}},
		{"large file", "move-file-too-large", func(m *moveTest) {
			_ = os.WriteFile(m.key, make([]byte, 2<<20), 0o600)
		}},
		{"unfinished operation", "operation-unfinished", func(m *moveTest) {
			m.Hosts["w1"].Refuse = func(string, op.Op) *op.Error { return &op.Error{Reason: "Failed", Message: "no"} }
			c := m.changed()
			c.Spec.SSH.PrivateKeyFile = m.key
			request := applying(c)
			request.KeepFailed = true
			m.do(request, event.Failed)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMoveTest(t, "cp1", "w1")
			tc.spoil(m)
			had := len(m.objects.clusters)
			refusal(t, m.move(), tc.want)
			if len(m.objects.clusters) != had || len(m.objects.secrets) > 0 {
				t.Errorf("a refused move has created objects: %v, %v", m.objects.clusters, m.objects.secrets)
			}
			if names, err := m.memory.Open().Clusters().List(t.Context()); err != nil || len(names) > 0 {
				t.Errorf("a refused move has written records: %v, %v", names, err)
			}
		})
	}
}

// TestMove_NeedsControllers moves a cluster to an API whose controllers do not run, or refuse the object. The command line
// manages the cluster as before.
func TestMove_NeedsControllers(t *testing.T) {
	t.Parallel()
	m := newMoveTest(t, "cp1")
	for _, tc := range []struct {
		name, want string
		change     func()
	}{
		{"no controllers", "do not respond", func() { m.objects.withoutControllers = true }},
		{"refused object", "host cp1 is in use", func() { m.objects.withoutControllers, m.objects.problem = false, "host cp1 is in use" }},
	} {
		tc.change()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		m.ctx = ctx
		err := m.move()
		cancel()
		if unfinished := (*move.UnfinishedError)(nil); !errors.As(err, &unfinished) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", tc.name, err, tc.want)
		}
		m.do(applying(m.manifest()), event.Succeeded)
	}
	m.objects.problem, m.ctx = "", t.Context()
	if err := m.move(); err != nil {
		t.Errorf("with controllers: %v", err)
	}
}

func TestMove_RefusesLockedCluster(t *testing.T) {
	t.Parallel()
	m := newMoveTest(t, "cp1", "w1")
	lock, err := m.records().Locks().Acquire(t.Context(), "prod", records.Holder{Operation: "other"})
	if err != nil {
		t.Fatal(err)
	}
	var locked *clusterlock.LockedError
	if err := m.move(); !errors.As(err, &locked) || locked.Operation != "other" {
		t.Errorf("got %v, want a LockedError", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}
