package lifecycle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

const (
	saPub = "/etc/kubernetes/pki/sa.pub"
	saKey = "/etc/kubernetes/pki/sa.key"
	// Creation timestamps in the API.
	madeBefore, rotatedAt, madeAfter = "2026-11-20T17:00:00Z", "2026-11-20T18:00:00Z", "2026-11-20T18:00:01Z"
)

// newAccountKey returns a private key and its public key, in PEM form.
func newAccountKey() (private, public string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err)
	}
	text, err := pki.EncodePublic(key.Public())
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})), string(text)
}

// rolled plays the controllers: a restarted workload gets new pods.
func (a *api) rolled(p string) {
	workload, ok := a.objects[p]
	if !ok || !strings.HasPrefix(p, "/apis/apps/") || !strings.Contains(fmt.Sprint(workload["spec"]), "restartedAt") {
		return
	}
	name := workload["metadata"].(object)["name"].(string)
	for at, o := range a.objects {
		if strings.HasPrefix(at, "/api/v1/namespaces/default/pods/"+name+"-") {
			o = copied(o)
			o["metadata"].(object)["creationTimestamp"] = madeAfter
			a.objects[at] = o
		}
	}
}

// tokenSecrets returns the Secrets with service account tokens.
func (a *api) tokenSecrets() object {
	items := []any{}
	for _, o := range a.objects {
		if o["type"] == "kubernetes.io/service-account-token" {
			items = append(items, o)
		}
	}
	return object{"apiVersion": "v1", "kind": "List", "items": items}
}

// workload creates a workload with a pod that has a token.
func (a *api) workload(kind, name string) {
	plural := map[string]string{
		"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets",
		"ReplicaSet": "replicasets",
	}[kind]
	owner := object{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}
	if plural != "" {
		a.put("/apis/apps/v1/namespaces/default/"+plural+"/"+name, merge(object{
			"apiVersion": "apps/v1", "kind": kind, "metadata": object{"name": name, "namespace": "default"},
			"spec": object{"replicas": 1, "selector": object{"matchLabels": object{"app": name}}},
		}, object{"status": object{
			"updatedReplicas": 1, "availableReplicas": 1, "replicas": 1,
			"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1,
		}}))
	}
	if kind == "Job" {
		a.put("/apis/batch/v1/namespaces/default/jobs/"+name,
			object{"apiVersion": "batch/v1", "kind": kind, "metadata": object{"name": name, "namespace": "default"}})
	}
	if kind == "Deployment" {
		a.put("/apis/apps/v1/namespaces/default/replicasets/"+name+"-1", object{
			"apiVersion": "apps/v1", "kind": "ReplicaSet",
			"metadata": object{"name": name + "-1", "namespace": "default", "ownerReferences": []any{owner}},
		})
		owner = object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name + "-1", "uid": name + "-1", "controller": true}
	}
	meta := object{"name": name + "-a", "namespace": "default", "creationTimestamp": madeBefore, "ownerReferences": []any{owner}}
	if kind == "Pod" {
		delete(meta, "ownerReferences")
	}
	a.put("/api/v1/namespaces/default/pods/"+name+"-a", object{
		"apiVersion": "v1", "kind": "Pod", "metadata": meta,
		"spec": object{"volumes": []any{object{
			"name":      "token",
			"projected": object{"sources": []any{object{"serviceAccountToken": object{"path": "token"}}}},
		}}},
	})
}

// rotatable creates a running cluster with workloads, whose control planes use one service
// account key, and returns the ID of the key.
func rotatable(t *testing.T) (w *world, from string) {
	t.Helper()
	w = newWorld(t, "cp1", "cp2", "cp3", "w1")
	w.create(event.Succeeded)
	private, public := newAccountKey()
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		m.files[saKey], m.files[saPub] = private, public
		for _, pod := range []string{"kube-apiserver", "kube-controller-manager"} {
			files := []string{saKey, saPub}
			if pod != "kube-apiserver" {
				files = files[:1]
			}
			o := op.StaticPodRestart{Manifest: "/etc/kubernetes/manifests/" + pod + ".yaml", Files: files}
			m.state["read by "+o.Manifest] = m.content(o)
		}
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		w.api.workload(kind, strings.ToLower(kind))
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
	private := w.machines["cp1"].files[saKey]
	key, err := pki.ParseKey([]byte(private))
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := pki.KeyID(key.Public())
	if err != nil || id == from {
		w.t.Errorf("cp1 signs with the old key: %v", err)
	}
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		keys, err := pki.PublicKeys([]byte(m.files[saPub]))
		if err != nil || len(keys) != 1 || keys[0].ID != id || m.files[saKey] != private {
			w.t.Errorf("%s verifies with %d keys, and has the signing key of cp1: %t: %v", name, len(keys), m.files[saKey] == private, err)
		}
		for path := range m.files {
			if strings.Contains(path, "/rotate/") {
				w.t.Errorf("%s still has %s", name, path)
			}
		}
	}
	for p, o := range w.api.objects {
		if strings.Contains(p, "/slipway-rotates-") ||
			strings.Contains(p, "/pods/") && o["metadata"].(object)["creationTimestamp"] == madeBefore {
			w.t.Errorf("%s still exists", p)
		}
	}
}

func rotateAccounts() RotateCARequest {
	return RotateCARequest{Name: "prod", Names: []string{"service-account"}}
}

// TestRotateAccounts checks the order. All control planes verify with both keys before any
// signs with the next key. Then pods are restarted, and the old key is removed.
func TestRotateAccounts(t *testing.T) {
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
				w.api.workload(tc.kind, "lone")
			} else {
				text := `{"alg":"ES256","kid":"` + from + `"}`
				if tc.name == "a Secret that names no key" {
					text = `{"alg":"RS256"}`
				}
				head := base64.RawURLEncoding.EncodeToString([]byte(text))
				w.api.put("/api/v1/namespaces/default/secrets/long", object{
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
				if keys, err := pki.PublicKeys([]byte(w.machines[name].files[saPub])); err != nil || len(keys) != 2 {
					t.Errorf("%s verifies with %d keys: %v", name, len(keys), err)
				}
			}
			w.api.remove("/api/v1/namespaces/default/pods/lone-a")
			w.api.remove("/api/v1/namespaces/default/secrets/long")
			w.resume(event.Succeeded)
			w.exchanged(from)
		})
	}
}

// deleted plays a user who deletes a workload, and the garbage collector. The pod is
// terminating; the workload is gone or waits for its pod.
func (a *api) deleted(kind, name string, waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ends := object{"metadata": object{"deletionTimestamp": madeBefore}}
	at, pod := "/apis/apps/v1/namespaces/default/"+strings.ToLower(kind)+"s/"+name, "/api/v1/namespaces/default/pods/"+name+"-a"
	if a.objects[pod] = merge(copied(a.objects[pod]), ends); waits {
		a.objects[at] = merge(copied(a.objects[at]), ends)
		return
	}
	delete(a.objects, at)
	delete(a.objects, strings.Replace(at, "/apps/", "/batch/", 1))
	delete(a.objects, "/apis/apps/v1/namespaces/default/replicasets/"+name+"-1")
}

// TestRotateAccountsDeleted checks that a workload that is deleted during the rotation is
// not restarted. The rotation waits until its pods have ended.
func TestRotateAccountsDeleted(t *testing.T) {
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
			w.api.workload(tc.kind, "gone")
			at := "/api/v1/namespaces/default/pods/gone-a"
			w.api.put(at, merge(copied(w.api.objects[at]), object{"metadata": object{"labels": object{"pod-template-hash": "1"}}}))
			w.api.ending = 6
			if tc.told == "" {
				w.api.deleted(tc.kind, "gone", tc.waits)
				w.api.wrote = func(what string) {
					if strings.HasSuffix(what, "/gone") {
						t.Errorf("%s: a deleted workload was restarted", what)
					}
				}
			}
			p := w.prepared(w.service().Prepare(t.Context(), rotateAccounts(), nil))
			res, err := p.Apply(t.Context(), event.SinkFunc(func(e event.Event) {
				if e.Type == event.StepProgress && e.Message == tc.told {
					w.api.deleted(tc.kind, "gone", tc.waits)
				}
			}))
			if err := errors.Join(err, p.Close()); err != nil || res.Outcome != event.Succeeded {
				t.Fatalf("%+v, %v", res, err)
			}
			w.exchanged(from)
			if w.api.ending >= 0 {
				t.Error("the rotation did not wait for the pod")
			}
		})
	}
}

// TestKilledRotateAccounts kills the manager at the end of each step and resumes. The old
// key is replaced exactly once.
func TestKilledRotateAccounts(t *testing.T) {
	w, from := rotatable(t)
	w.killedExchange(t, rotateAccounts(), "/etc/slipway/rotate/sa.key", saKey, (*world).unwatched, func(k *world) { k.exchanged(from) })
}

func (w *world) unwatched() {}

// killedExchange kills a rotation at the end of each step and finishes it by a resume or
// the same command. If the next key exists already, it must be the new signing key.
func (w *world) killedExchange(t *testing.T, r Request, next, signs string, watched, exchanged func(*world)) {
	t.Helper()
	keeper := "cp1"
	if w.apart {
		keeper = "ex1"
	}
	old := w.machines[keeper].files[signs]
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
				k.t = t
				made, had := k.machines[keeper].files[next], k.machines[keeper].files[signs]
				watched(k)
				goOn(k)
				exchanged(k)
				if is := k.machines[keeper].files[signs]; made != "" && is != made || made == "" && had != old && is != had {
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
			private, public := newAccountKey()
			w.machines["cp1"].files["/etc/slipway/rotate/sa.key"], w.machines["cp1"].files["/etc/slipway/rotate/sa.pub"] = private, public
			for _, name := range []string{"cp1", "cp2", "cp3"} {
				m := w.machines[name]
				m.files[saKey] = private
				if slices.Contains(tc.only, name) {
					m.files[saPub] = public
				} else {
					m.files[saPub] = public + m.files[saPub]
				}
			}
			w.api.remove("/api/v1/namespaces/default/pods/deployment-a")
			w.api.remove("/api/v1/namespaces/default/pods/statefulset-a")
			w.api.remove("/api/v1/namespaces/default/pods/daemonset-a")
			w.do(rotateAccounts(), event.Succeeded)
			w.exchanged(from)
			if w.machines["cp1"].files[saKey] != private {
				t.Error("it was rotated twice")
			}
		})
	}
}

// If no host has the next key, a control plane that lacks one of the keys has not dropped
// any. All known keys are trusted, and all sign with a new key before any key is removed.
func TestRotateAccountsWithoutNext(t *testing.T) {
	t.Parallel()
	w, _ := rotatable(t)
	private, public := newAccountKey()
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		old := m.files[saPub]
		m.files[saKey] = private
		if m.files[saPub] = public; name == "cp3" {
			m.files[saPub] += old
		}
	}
	w.api.remove("/api/v1/namespaces/default/pods/deployment-a")
	w.api.remove("/api/v1/namespaces/default/pods/statefulset-a")
	w.api.remove("/api/v1/namespaces/default/pods/daemonset-a")
	w.do(rotateAccounts(), event.Succeeded)
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		m := w.machines[name]
		key, err := pki.PublicKeys([]byte(m.files[saPub]))
		if err != nil || len(key) != 1 {
			t.Fatalf("%s verifies with %d keys: %v", name, len(key), err)
		}
		if m.files[saKey] == private {
			t.Errorf("%s signs with a key that is no longer trusted", name)
		}
	}
}

// TestRotateRefused checks that a rotation that is not possible is refused before anything
// is touched.
func TestRotateRefused(t *testing.T) {
	t.Parallel()
	w, _ := rotatable(t)
	r := rotateAccounts()
	r.Names = []string{"service-acount"}
	var list diag.List
	if _, err := w.service().Prepare(t.Context(), r, nil); !errors.As(err, &list) || list[0].ID != idUnknownRotation {
		t.Errorf("an unknown name: %v", err)
	}
	w.machines["cp2"].down = errDown
	r = rotateAccounts()
	r.IgnoreErrors = true
	if _, err := w.service().Prepare(t.Context(), r, nil); err == nil {
		t.Error("the rotation starts without a control plane that is down")
	}
	w.machines["cp2"].down = nil
	delete(w.machines["cp2"].files, saPub)
	if _, err := w.service().Prepare(t.Context(), rotateAccounts(), nil); !errors.As(err, &list) || list[0].ID != idRotationKey {
		t.Errorf("a control plane without its key: %v", err)
	}
}
