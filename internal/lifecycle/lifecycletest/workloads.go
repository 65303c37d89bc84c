package lifecycletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.dev/slipway/internal/pki"
)

// evictPod deletes a pod. It refuses this as long as there is a disruption budget in the
// namespace of the pod.
func (a *API) evictPod(pod string) (any, int) {
	budgets := strings.Replace(path.Dir(path.Dir(pod)), "/api/v1/", "/apis/policy/v1/", 1) + "/poddisruptionbudgets"
	for at := range a.Objects {
		if path.Dir(at) == budgets {
			return object{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": http.StatusTooManyRequests,
				"message": "Cannot evict pod as it would violate the pod's disruption budget.",
			}, http.StatusTooManyRequests
		}
	}
	delete(a.Objects, pod)
	return object{"kind": "Status", "apiVersion": "v1", "status": "Success"}, http.StatusCreated
}

// endPods simulates kubelets, which take some time to stop pods.
func (a *API) endPods() {
	if a.Terminating--; a.Terminating >= 0 {
		return
	}
	maps.DeleteFunc(a.Objects, func(at string, o object) bool {
		meta, _ := o["metadata"].(object)
		return strings.Contains(at, "/pods/") && meta["deletionTimestamp"] != nil
	})
}

// podsOfWorkloads returns the available pods of the workloads in a namespace with these labels.
func (a *API) podsOfWorkloads(namespace, selected string) (out []any) {
	selector, err := labels.Parse(selected)
	if err != nil {
		a.T.Error(err)
	}
	prefix := strings.Replace(namespace, "/api/v1/", "/apis/apps/v1/", 1)
	for at, o := range a.Objects {
		var w struct {
			Spec   struct{ Selector metav1.LabelSelector }
			Status struct{ AvailableReplicas, NumberAvailable int }
		}
		if path.Dir(path.Dir(at)) != prefix {
			continue
		}
		raw, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(raw, &w)
		}
		if err != nil {
			a.T.Errorf("%s: %v", at, err)
		}
		if !selector.Matches(labels.Set(w.Spec.Selector.MatchLabels)) {
			continue
		}
		for i := range max(w.Status.AvailableReplicas, w.Status.NumberAvailable) {
			out = append(out, object{
				"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": path.Base(at)},
				"spec":   object{"nodeName": fmt.Sprintf("node-%d", i)},
				"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
			})
		}
	}
	return out
}

// CreatedBefore is the creation time of pods from before a rotation.
const CreatedBefore = "2026-11-20T17:00:00Z"

// The times of a rotation, and of pods that are created after it.
const (
	rotatedAt    = "2026-11-20T18:00:00Z"
	createdAfter = "2026-11-20T18:00:01Z"
)

// NewAccountKey returns a private key and its public key, in PEM form.
func NewAccountKey() (private, public string) {
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

// restartPods simulates the controllers: a restarted workload gets new pods.
func (a *API) restartPods(p string) {
	workload, ok := a.Objects[p]
	if !ok || !strings.HasPrefix(p, "/apis/apps/") || !strings.Contains(fmt.Sprint(workload["spec"]), "restartedAt") {
		return
	}
	name := workload["metadata"].(object)["name"].(string)
	for at, o := range a.Objects {
		if strings.HasPrefix(at, "/api/v1/namespaces/default/pods/"+name+"-") {
			o = CopyObject(o)
			o["metadata"].(object)["creationTimestamp"] = createdAfter
			a.Objects[at] = o
		}
	}
}

// tokenSecrets returns the Secrets with service account tokens.
func (a *API) tokenSecrets() object {
	items := []any{}
	for _, o := range a.Objects {
		if o["type"] == "kubernetes.io/service-account-token" {
			items = append(items, o)
		}
	}
	return object{"apiVersion": "v1", "kind": "List", "items": items}
}

// CreateWorkload creates a workload with a pod that has a token.
func (a *API) CreateWorkload(kind, name string) {
	plural := map[string]string{
		"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets",
		"ReplicaSet": "replicasets",
	}[kind]
	owner := object{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}
	if plural != "" {
		a.PutObject("/apis/apps/v1/namespaces/default/"+plural+"/"+name, MergePatch(object{
			"apiVersion": "apps/v1", "kind": kind, "metadata": object{"name": name, "namespace": "default"},
			"spec": object{"replicas": 1, "selector": object{"matchLabels": object{"app": name}}},
		}, object{"status": object{
			"updatedReplicas": 1, "availableReplicas": 1, "replicas": 1,
			"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1,
		}}))
	}
	if kind == "Job" {
		a.PutObject("/apis/batch/v1/namespaces/default/jobs/"+name,
			object{"apiVersion": "batch/v1", "kind": kind, "metadata": object{"name": name, "namespace": "default"}})
	}
	if kind == "Deployment" {
		a.PutObject("/apis/apps/v1/namespaces/default/replicasets/"+name+"-1", object{
			"apiVersion": "apps/v1", "kind": "ReplicaSet",
			"metadata": object{"name": name + "-1", "namespace": "default", "ownerReferences": []any{owner}},
		})
		owner = object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name + "-1", "uid": name + "-1", "controller": true}
	}
	meta := object{"name": name + "-a", "namespace": "default", "creationTimestamp": CreatedBefore, "ownerReferences": []any{owner}}
	if kind == "Pod" {
		delete(meta, "ownerReferences")
	}
	a.PutObject("/api/v1/namespaces/default/pods/"+name+"-a", object{
		"apiVersion": "v1", "kind": "Pod", "metadata": meta,
		"spec": object{"volumes": []any{object{
			"name":      "token",
			"projected": object{"sources": []any{object{"serviceAccountToken": object{"path": "token"}}}},
		}}},
	})
}

// DeleteWorkload simulates a user who deletes a workload, and the garbage collector. The pod is
// terminating; the workload is gone or waits for its pod.
func (a *API) DeleteWorkload(kind, name string, waits bool) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	ends := object{"metadata": object{"deletionTimestamp": CreatedBefore}}
	at, pod := "/apis/apps/v1/namespaces/default/"+strings.ToLower(kind)+"s/"+name, "/api/v1/namespaces/default/pods/"+name+"-a"
	if a.Objects[pod] = MergePatch(CopyObject(a.Objects[pod]), ends); waits {
		a.Objects[at] = MergePatch(CopyObject(a.Objects[at]), ends)
		return
	}
	delete(a.Objects, at)
	delete(a.Objects, strings.Replace(at, "/apps/", "/batch/", 1))
	delete(a.Objects, "/apis/apps/v1/namespaces/default/replicasets/"+name+"-1")
}
