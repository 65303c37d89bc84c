package controller

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle/bundletest"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/lifecycle/move"
	"slipway.dev/slipway/internal/operator/api"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/store"
)

// A commandLine manages a cluster with records in files.
type commandLine struct {
	*lifecycle.Service
	mover *move.Mover
	// cluster is the description, with the path of a key.
	cluster *v1alpha1.Cluster
}

// newCommandLine creates the cluster prod from the command line.
func (w *world) newCommandLine(names ...string) *commandLine {
	w.t.Helper()
	files, err := store.Open(w.t.TempDir())
	if err != nil {
		w.t.Fatal(err)
	}
	private, err := files.Files(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	key := filepath.Join(w.t.TempDir(), "id_ed25519")
	if err := os.WriteFile(key, newKey(w.t), 0o600); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	c := &commandLine{cluster: w.object(names...), Service: lifecycle.New(lifecycle.Config{
		Records: files, Files: private, Catalogue: bundletest.LoadCatalogue(w.t), Cache: bundleCache(w.t), Home: w.t.TempDir(),
		Connect: w.Connect, Dial: w.Dial, Now: time.Now, Log: log,
	})}
	c.cluster.Namespace, c.cluster.Spec.FilesFrom, c.cluster.Spec.SSH.PrivateKeyFile = "", nil, key
	c.mover = move.New(move.Config{
		View: c.View, Log: log,
		Dialer:  hostconn.Dialer{Connect: w.Connect, KnownHosts: private.KnownHosts(), Home: w.t.TempDir(), Log: log},
		Resolve: func(v1alpha1.Host, remote.Options) (remote.Login, error) { return remote.Login{}, nil },
		KnownKeys: func(h v1alpha1.Host, _ remote.Options) ([]string, error) {
			return []string{h.Address + " ssh-ed25519 AAAA"}, nil
		},
	})
	if err := c.do(w, lifecycle.CreateRequest{Subject: lifecycle.Subject{Cluster: c.cluster}}); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// do applies a request.
func (c *commandLine) do(w *world, r lifecycle.Request) error {
	w.t.Helper()
	p, err := c.Prepare(w.t.Context(), r, nil)
	if err != nil {
		return err
	}
	res, err := p.Apply(w.t.Context())
	err = errors.Join(err, p.Close())
	if err == nil && res.Outcome != event.Succeeded {
		w.t.Fatalf("the command line ends with %s: %+v", res.Outcome, res.Failures)
	}
	return err
}

// moveToAPI moves the cluster to the API.
func (c *commandLine) moveToAPI(w *world) error {
	w.t.Helper()
	objects, err := api.New(server.Admin, w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := objects.Check(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	saved := w.openSaved()
	return c.mover.Move(w.t.Context(), "prod", move.Target{Records: saved, Objects: objects, Server: "https://server.example.com"}, nil)
}

// TestMove_ControllersContinue moves a cluster from the command line to an API with running controllers, which change it
// afterwards.
func TestMove_ControllersContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cp1", "w1")
	c := w.newCommandLine("cp1", "w1")
	before := w.Hosts["w1"].AllState()
	if err := c.moveToAPI(w); err != nil {
		t.Fatal(err)
	}
	w.waitForApplied()
	if after := w.Hosts["w1"].AllState(); len(after) != len(before) {
		t.Errorf("the host had %d items before the move, now %d", len(before), len(after))
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(55)} })
	w.waitForApplied()
	w.requireStates("apply Succeeded", "apply Succeeded")

	c.cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"maxPods": float64(66)}
	var refused diag.List
	err := c.do(w, lifecycle.ApplyRequest{Subject: lifecycle.Subject{Cluster: c.cluster}})
	if !errors.As(err, &refused) || refused[0].ID != "other-manager" {
		t.Errorf("the command line: got %v, want other-manager", err)
	}
	if err := c.moveToAPI(w); !errors.As(err, &refused) || refused[0].ID != "move-cluster-exists" {
		t.Errorf("a second move: got %v, want move-cluster-exists", err)
	}
	w.delete()
	w.waitUntilGone()
	w.eventually(func() string {
		_, err := server.Client(t).CoreV1().Secrets(w.namespace).Get(t.Context(), "prod-files", metav1.GetOptions{})
		if err == nil {
			return "the Secret with the files still exists"
		}
		return ""
	})
}

// TestAPI_RefusesOtherAPIs checks the API before a move.
func TestAPI_RefusesOtherAPIs(t *testing.T) {
	t.Parallel()
	objects, err := api.New(server.Admin, "missing")
	if err != nil {
		t.Fatal(err)
	}
	var refused diag.List
	if err := objects.Check(t.Context()); !errors.As(err, &refused) || refused[0].ID != "api-namespace-missing" {
		t.Errorf("got %v, want api-namespace-missing", err)
	}
}
