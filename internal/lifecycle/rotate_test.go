package lifecycle

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/lifecycletest"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

const (
	saPub = "/etc/kubernetes/pki/sa.pub"
	saKey = "/etc/kubernetes/pki/sa.key"
)

// rotatable creates a running cluster with workloads, whose control planes use one service
// account key, and returns the ID of the key.
func rotatable(t *testing.T) (w *world, from string) {
	t.Helper()
	w = newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	private, public := lifecycletest.NewAccountKey()
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		m.Files[saKey], m.Files[saPub] = private, public
		for _, pod := range []string{"kube-apiserver", "kube-controller-manager"} {
			files := []string{saKey, saPub}
			if pod != "kube-apiserver" {
				files = files[:1]
			}
			o := op.StaticPodRestart{Manifest: "/etc/kubernetes/manifests/" + pod + ".yaml", Files: files}
			m.State["read by "+o.Manifest] = m.HashInputs(o)
		}
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		w.API.CreateWorkload(kind, strings.ToLower(kind))
	}
	keys, err := pki.PublicKeys([]byte(public))
	if err != nil {
		t.Fatal(err)
	}
	return w, keys[0].ID
}

// exchanged checks that all control planes sign and verify with one new key, and that
// nothing of the rotation is left.
func (w *world) exchanged(from string) {
	w.t.Helper()
	private := w.Hosts["cp1"].Files[saKey]
	key, err := pki.ParseKey([]byte(private))
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := pki.KeyID(key.Public())
	if err != nil || id == from {
		w.t.Errorf("cp1 signs with the old key: %v", err)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		keys, err := pki.PublicKeys([]byte(m.Files[saPub]))
		if err != nil || len(keys) != 1 || keys[0].ID != id || m.Files[saKey] != private {
			w.t.Errorf("%s verifies with %d keys, and has the signing key of cp1: %t: %v", name, len(keys), m.Files[saKey] == private, err)
		}
		for path := range m.Files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s still has %s", name, path)
			}
		}
	}
	for p, o := range w.API.Objects {
		if strings.Contains(p, "/slipway-rotates-") ||
			strings.Contains(p, "/pods/") && o["metadata"].(object)["creationTimestamp"] == lifecycletest.CreatedBefore {
			w.t.Errorf("%s still exists", p)
		}
	}
}

func rotateAccounts() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{"service-account"}}
}

// TestRotateAccounts_TrustsNextKeyBeforeUsingIt checks the order. All control planes verify with both keys before any
// signs with the next key. Then pods are restarted, and the old key is removed.
func TestRotateAccounts_TrustsNextKeyBeforeUsingIt(t *testing.T) {
	t.Parallel()
	w, from := rotatable(t)
	res := w.do(rotateAccounts(), event.Succeeded)
	w.exchanged(from)
	var order []string
	for _, e := range w.events {
		if e.Type == event.StepFinished && e.Outcome == event.Changed && strings.HasPrefix(e.Task, "rotate.") && !slices.Contains(order, e.Task) {
			order = append(order, e.Task)
		}
	}
	if got := strings.Join(order,
		" "); got !=
		"rotate.accounts.make rotate.accounts.trust rotate.accounts.sign rotate.accounts.pods rotate.accounts.drop "+
			"rotate.accounts.mark rotate.accounts.end" {
		t.Errorf("the order is %s", got)
	}
	if len(res.Ready) == 0 {
		t.Error("the result is empty")
	}
	w.wantStatus(v1alpha1.PhaseRunning, "rotate-ca Succeeded", "create Succeeded")
}

// TestRotateAccounts_KeepsKeyForHeldTokens checks that the old key is kept while an object
// holds a token of it. The failure names the object; a resume finishes the rotation after its
// removal.
func TestRotateAccounts_KeepsKeyForHeldTokens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, kind, says string
	}{
		{"a bare pod", "Pod", "Pod default/lone-a"},
		{"a job's", "Job", "Job default/lone"},
		{"a Secret", "", "Secret default/long"},
		{"a Secret that names no key", "", "Secret default/long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, from := rotatable(t)
			if tc.kind != "" {
				w.API.CreateWorkload(tc.kind, "lone")
			} else {
				text := `{"alg":"ES256","kid":"` + from + `"}`
				if tc.name == "a Secret that names no key" {
					text = `{"alg":"RS256"}`
				}
				head := base64.RawURLEncoding.EncodeToString([]byte(text))
				w.API.PutObject("/api/v1/namespaces/default/secrets/long", object{
					"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
					"metadata": object{"name": "long", "namespace": "default"},
					"data":     object{"token": base64.StdEncoding.EncodeToString([]byte(head + ".e30.sig"))},
				})
			}
			res := w.do(rotateAccounts(), event.Failed)
			if f := res.Failures[0]; f.Reason != op.IDTokensHeld || !strings.Contains(f.Message, tc.says) {
				t.Errorf("%+v", f)
			}
			for _, name := range []string{"cp1", "cp2", "cp3"} {
				if keys, err := pki.PublicKeys([]byte(w.Hosts[name].Files[saPub])); err != nil || len(keys) != 2 {
					t.Errorf("%s verifies with %d keys: %v", name, len(keys), err)
				}
			}
			w.API.RemoveObject("/api/v1/namespaces/default/pods/lone-a")
			w.API.RemoveObject("/api/v1/namespaces/default/secrets/long")
			w.resume(event.Succeeded)
			w.exchanged(from)
		})
	}
}

// TestRotateAccounts_WaitsForPodsOfDeletedWorkload checks that a workload that is deleted during the rotation is
// not restarted. The rotation waits until its pods have ended.
func TestRotateAccounts_WaitsForPodsOfDeletedWorkload(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, kind string
		waits      bool
		told       string // the note at which it is deleted; "" means before the rotation
	}{
		{"a Deployment", "Deployment", false, ""},
		{"a Deployment that waits for its pods", "Deployment", true, ""},
		{"a Deployment when it is to be restarted", "Deployment", false, "restarting Deployment default/gone"},
		{"a StatefulSet", "StatefulSet", false, ""},
		{"a DaemonSet", "DaemonSet", false, ""},
		{"a hand-made ReplicaSet", "ReplicaSet", false, ""},
		{"a Job", "Job", false, ""},
		{"a bare pod", "Pod", false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, from := rotatable(t)
			w.API.CreateWorkload(tc.kind, "gone")
			at := "/api/v1/namespaces/default/pods/gone-a"
			labels := object{"metadata": object{"labels": object{"pod-template-hash": "1"}}}
			w.API.PutObject(at, lifecycletest.MergePatch(lifecycletest.CopyObject(w.API.Objects[at]), labels))
			w.API.Terminating = 6
			if tc.told == "" {
				w.API.DeleteWorkload(tc.kind, "gone", tc.waits)
				w.API.OnWrite = func(what string) {
					if strings.HasSuffix(what, "/gone") {
						t.Errorf("%s: a deleted workload was restarted", what)
					}
				}
			}
			p := w.prepared(w.service().Prepare(t.Context(), rotateAccounts(), nil))
			res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
				if e.Type == event.StepProgress && e.Message == tc.told {
					w.API.DeleteWorkload(tc.kind, "gone", tc.waits)
				}
			}))
			if err := errors.Join(err, p.Close()); err != nil || res.Outcome != event.Succeeded {
				t.Fatalf("%+v, %v", res, err)
			}
			w.exchanged(from)
			if w.API.Terminating >= 0 {
				t.Error("the rotation did not wait for the pod")
			}
		})
	}
}

// TestRotateAccounts_ReplacesKeyOnceAfterKill kills the manager at the end of each step and resumes. The old
// key is replaced exactly once.
func TestRotateAccounts_ReplacesKeyOnceAfterKill(t *testing.T) {
	w, from := rotatable(t)
	w.killedExchange(t, rotateAccounts(), "/etc/slipway/rotate/sa.key", saKey, (*world).unwatched, func(k *world) { k.exchanged(from) })
}

func (w *world) unwatched() {}

// killedExchange kills a rotation at the end of each step and finishes it by a resume or
// the same command. If the next key exists already, it must be the new signing key.
func (w *world) killedExchange(t *testing.T, r Request, next, signs string, watched, exchanged func(*world)) {
	t.Helper()
	keeper := "cp1"
	if w.SeparateEtcd {
		keeper = "ex1"
	}
	old := w.Hosts[keeper].Files[signs]
	moments := w.killed(t, r)
	if len(moments) < 10/oneIn {
		t.Errorf("%d moments", len(moments))
	}
	on := map[string]func(*world){
		"resume":           func(k *world) { k.goOn(r) },
		"the same command": func(k *world) { k.do(r, event.Succeeded) },
	}
	for _, m := range moments {
		for how, goOn := range on {
			k := m.world.fork(t)
			t.Run(m.name+", "+how, func(t *testing.T) {
				t.Parallel()
				k.useT(t)
				made, had := k.Hosts[keeper].Files[next], k.Hosts[keeper].Files[signs]
				watched(k)
				goOn(k)
				exchanged(k)
				if is := k.Hosts[keeper].Files[signs]; made != "" && is != made || made == "" && had != old && is != had {
					t.Error("it was rotated twice")
				}
				k.wantPhase(v1alpha1.PhaseRunning)
			})
		}
	}
}

// TestRotateAccounts_FinishesInterruptedRotation checks that a new request finishes a rotation
// that was interrupted near its end. The next key is not rotated again.
func TestRotateAccounts_FinishesInterruptedRotation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		only []string // control planes that have dropped the old key
	}{{"on one", []string{"cp1"}}, {"on the others", []string{"cp2", "cp3"}}, {"on all", []string{"cp1", "cp2", "cp3"}}} {
		t.Run(tc.name, func(t *testing.T) {
			w, from := rotatable(t)
			private, public := lifecycletest.NewAccountKey()
			w.Hosts["cp1"].Files["/etc/slipway/rotate/sa.key"], w.Hosts["cp1"].Files["/etc/slipway/rotate/sa.pub"] = private, public
			for _, name := range []string{"cp1", "cp2", "cp3"} {
				m := w.Hosts[name]
				m.Files[saKey] = private
				if slices.Contains(tc.only, name) {
					m.Files[saPub] = public
				} else {
					m.Files[saPub] = public + m.Files[saPub]
				}
			}
			w.API.RemoveObject("/api/v1/namespaces/default/pods/deployment-a")
			w.API.RemoveObject("/api/v1/namespaces/default/pods/statefulset-a")
			w.API.RemoveObject("/api/v1/namespaces/default/pods/daemonset-a")
			w.do(rotateAccounts(), event.Succeeded)
			w.exchanged(from)
			if w.Hosts["cp1"].Files[saKey] != private {
				t.Error("it was rotated twice")
			}
		})
	}
}

// If no host has the next key, a control plane that lacks one of the keys has not dropped
// any. All known keys are trusted, and all sign with a new key before any key is removed.
func TestRotateAccounts_CreatesNewKeyIfNextKeyIsMissing(t *testing.T) {
	t.Parallel()
	w, _ := rotatable(t)
	private, public := lifecycletest.NewAccountKey()
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		old := m.Files[saPub]
		m.Files[saKey] = private
		if m.Files[saPub] = public; name == "cp3" {
			m.Files[saPub] += old
		}
	}
	w.API.RemoveObject("/api/v1/namespaces/default/pods/deployment-a")
	w.API.RemoveObject("/api/v1/namespaces/default/pods/statefulset-a")
	w.API.RemoveObject("/api/v1/namespaces/default/pods/daemonset-a")
	w.do(rotateAccounts(), event.Succeeded)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.Hosts[name]
		key, err := pki.PublicKeys([]byte(m.Files[saPub]))
		if err != nil || len(key) != 1 {
			t.Fatalf("%s verifies with %d keys: %v", name, len(key), err)
		}
		if m.Files[saKey] == private {
			t.Errorf("%s signs with a key that is no longer trusted", name)
		}
	}
}

// A rotation is refused for an unknown name, and if a control plane is down or lacks its
// key.
func TestRotateAccounts_RefusesImpossibleRotation(t *testing.T) {
	t.Parallel()
	w, _ := rotatable(t)
	r := rotateAccounts()
	r.Names = []string{"service-acount"}
	var list diag.List
	if _, err := w.service().Prepare(t.Context(), r, nil); !errors.As(err, &list) || list[0].ID != idUnknownRotation {
		t.Errorf("an unknown name: %v", err)
	}
	w.Hosts["cp2"].Down = errDown
	r = rotateAccounts()
	r.IgnoreErrors = true
	if _, err := w.service().Prepare(t.Context(), r, nil); err == nil {
		t.Error("the rotation starts without a control plane that is down")
	}
	w.Hosts["cp2"].Down = nil
	delete(w.Hosts["cp2"].Files, saPub)
	if _, err := w.service().Prepare(t.Context(), rotateAccounts(), nil); !errors.As(err, &list) || list[0].ID != idRotationKey {
		t.Errorf("a control plane without its key: %v", err)
	}
}
