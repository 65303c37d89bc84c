package lifecycletest

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
)

type object = map[string]any

// An API is a simulated API server: objects by path, applied by merging. It knows only the
// kinds that the pipelines use.
type API struct {
	T      testing.TB
	server *httptest.Server

	// Mu guards the objects and the state of etcd while an operation runs.
	Mu      sync.Mutex
	Objects map[string]object
	Running bool // the kubelet of the API server runs
	bound   bool // the administrator has rights

	// GuardedNode is the name of a node whose changes are refused.
	GuardedNode string
	// JobResults holds the condition types of Jobs that do not complete, by Job name.
	JobResults map[string]string
	// Metrics is the response to a request of /metrics.
	Metrics string
	// Settings is the configuration that kubeadm has uploaded to the cluster.
	Settings string
	// Terminating is how many more times the list of pods includes terminating pods.
	Terminating int
	// DNSMoving is how many queries a pod of CoreDNS is missing after a node was deleted.
	// DNSAway is how many of these queries are left.
	DNSMoving, DNSAway int
	// OnWrite, if not nil, is called with each request that has changed something.
	OnWrite func(what string)

	// proxy holds the settings that pods of kube-proxy use, and proxyNext the settings
	// that they read at their next start.
	proxy, proxyNext string
	// sliceChanges is the number of changes of EndpointSlices. ProxyBehind has the nodes
	// whose kube-proxy has received none of them.
	sliceChanges int
	ProxyBehind  map[string]bool

	// ServingCert, if not nil, returns the certificate of the API servers. KubeletCert, if
	// not nil, returns the certificate of the kubelet at an address.
	ServingCert func() *tls.Certificate
	KubeletCert func(address string) *tls.Certificate
	// ServerKeys holds the encryption keys that each API server has read, by host.
	// SealedWith holds the start of the value of each Secret in etcd, by path.
	ServerKeys, SealedWith map[string]string

	// The etcd members in static pods.
	Members   map[string]string // name → role
	Down      map[string]bool   // members that do not answer
	endpoints map[string]string // endpoint → member name
	Minors    EtcdMinors
	// ManagedEtcd is etcd as a service.
	ManagedEtcd *ManagedEtcd
	// EtcdProblem is the problem that blocks operations on etcd.
	EtcdProblem string

	// Revision is the revision of etcd, if it matters. bump is how far a restore raises it
	// above the snapshot.
	Revision string
	bump     uint64
	// RestoreDone holds the steps of a restore, by host: "swap cp1". With Rescuing, the
	// restore recovers RescueMembers.
	RestoreDone   map[string]bool
	Rescuing      bool
	RescueMembers []string
}

// resourceKinds maps each group and version to its resources, plural to kind. A "!" marks a
// cluster-scoped kind.
var resourceKinds = map[string]map[string]string{
	"/api/v1": {
		"namespaces": "!Namespace", "nodes": "!Node", "configmaps": "ConfigMap", "secrets": "Secret",
		"serviceaccounts": "ServiceAccount", "pods": "Pod", "services": "Service",
	},
	"/apis/batch/v1": {"jobs": "Job"},
	"/apis/apps/v1":  {"daemonsets": "DaemonSet", "deployments": "Deployment", "statefulsets": "StatefulSet", "replicasets": "ReplicaSet"},
	"/apis/admissionregistration.k8s.io/v1": {
		"validatingadmissionpolicies": "!ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "!ValidatingAdmissionPolicyBinding",
		"validatingwebhookconfigurations": "!ValidatingWebhookConfiguration", "mutatingwebhookconfigurations": "!MutatingWebhookConfiguration",
	},
	"/apis/apiregistration.k8s.io/v1": {"apiservices": "!APIService"},
	"/apis/certificates.k8s.io/v1": {
		"clustertrustbundles":        "!ClusterTrustBundle",
		"certificatesigningrequests": "!CertificateSigningRequest",
	},
	"/apis/coordination.k8s.io/v1": {"leases": "Lease"},
	"/apis/discovery.k8s.io/v1":    {"endpointslices": "EndpointSlice"},
	"/apis/policy/v1":              {"poddisruptionbudgets": "PodDisruptionBudget"},
	"/apis/rbac.authorization.k8s.io/v1": {
		"clusterroles": "!ClusterRole", "clusterrolebindings": "!ClusterRoleBinding",
		"roles": "Role", "rolebindings": "RoleBinding",
	},
}

// NewAPI starts an API server without objects. It stops when the test ends.
func NewAPI(t testing.TB) *API {
	a := &API{
		T: t, Objects: map[string]object{}, Members: map[string]string{}, Down: map[string]bool{}, endpoints: map[string]string{},
		ServerKeys: map[string]string{}, SealedWith: map[string]string{},
		ManagedEtcd: &ManagedEtcd{Running: map[string]string{}}, Minors: newMinors(),
	}
	a.server = httptest.NewUnstartedServer(a)
	a.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.server.TLS = &tls.Config{
		ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{ServerCert()},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if a.ServingCert == nil {
				return &a.server.TLS.Certificates[0], nil
			}
			return a.ServingCert(), nil
		},
	}
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

// Clone returns another server with the same objects.
func (a *API) Clone() *API {
	c := NewAPI(a.T)
	a.Mu.Lock()
	defer a.Mu.Unlock()
	for p, o := range a.Objects {
		c.Objects[p] = CopyObject(o)
	}
	c.Members, c.Down = maps.Clone(a.Members), maps.Clone(a.Down)
	c.ServerKeys, c.SealedWith = maps.Clone(a.ServerKeys), maps.Clone(a.SealedWith)
	c.Revision, c.bump, c.RestoreDone = a.Revision, a.bump, maps.Clone(a.RestoreDone)
	c.Rescuing, c.RescueMembers = a.Rescuing, a.RescueMembers
	c.sliceChanges = a.sliceChanges
	c.Running, c.bound, c.ManagedEtcd = a.Running, a.bound, a.ManagedEtcd.clone()
	c.Minors, c.proxy, c.proxyNext = a.Minors.clone(), a.proxy, a.proxyNext
	return c
}

// ListenAddress returns the address of the server.
func (a *API) ListenAddress() string { return a.server.Listener.Addr().String() }

// ServeHTTP handles a request of a client with the certificate of the administrator.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if shown := r.TLS.PeerCertificates; len(shown) == 0 || !strings.HasPrefix(shown[0].Subject.CommonName, "admin.conf") {
		a.T.Errorf("%s %s without the administrator's certificate", r.Method, r.URL)
	}
	var body object
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest) // the client has ended the request
		return
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			a.T.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}
	if r.URL.Path == "/metrics" {
		_, _ = io.WriteString(w, a.Metrics)
		return
	}
	if r.URL.Path == "/readyz" {
		_, _ = io.WriteString(w, "ok")
		return
	}
	code, answer := a.serveLocked(r, body)
	if a.OnWrite != nil && r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
		a.OnWrite(r.Method + " " + r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(answer)
}

// serveLocked handles a request. It encodes the response under the lock, because the next
// request may change the objects in it.
func (a *API) serveLocked(r *http.Request, body object) (code int, answer []byte) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	has, code := a.respond(r, body)
	answer, err := json.Marshal(has)
	if err != nil {
		a.T.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	return code, answer
}

func (a *API) respond(r *http.Request, body object) (any, int) {
	p := r.URL.Path
	if resources, ok := resourceKinds[p]; ok {
		return resourceList(resources), http.StatusOK
	}
	_, collection := resourceNames()[path.Base(p)]
	if r.Method != http.MethodGet && r.Method != http.MethodDelete && r.URL.Query().Get("dryRun") == "" {
		defer a.sealSecret(p, body)
	}
	have := a.Objects[p]
	if strings.Contains(p, "/endpointslices/") && (r.Method == http.MethodPatch || r.Method == http.MethodDelete && have != nil) {
		a.sliceChanges++
	}
	missing := object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
		"message": p + " is not there",
	}
	switch {
	case !a.bound, r.Method == http.MethodPatch && p == "/api/v1/nodes/"+a.GuardedNode:
		missing["reason"], missing["code"] = "Forbidden", 403
		return missing, http.StatusForbidden
	case r.Method == http.MethodGet && collection && strings.Contains(r.URL.RawQuery, "service-account-token"):
		return a.tokenSecrets(), http.StatusOK
	case r.Method == http.MethodGet && collection:
		_, node, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		list := a.listObjects(p, node)
		if label := r.URL.Query().Get("labelSelector"); label != "" && path.Base(p) == "pods" {
			list["items"] = append(list["items"].([]any), a.podsOfWorkloads(path.Dir(p), label)...)
		}
		return list, http.StatusOK
	case r.Method == http.MethodPost && path.Base(p) == "eviction":
		return a.evictPod(path.Dir(p))
	case r.Method == http.MethodPost && collection:
		data := object{}
		for k, v := range body["stringData"].(object) {
			data[k] = base64.StdEncoding.EncodeToString([]byte(v.(string)))
		}
		body["data"] = data
		delete(body, "stringData")
		a.Objects[p+"/"+body["metadata"].(object)["name"].(string)] = body
		return body, http.StatusCreated
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		then := MergePatch(CopyObject(have), body)
		if have == nil && path.Base(path.Dir(p)) == "deployments" { // its pods are there at once
			then["status"] = readyDeployment()
		}
		if path.Base(path.Dir(p)) == "jobs" { // which are done at once
			then["status"] = object{"conditions": []any{object{"type": cmp.Or(a.JobResults[path.Base(p)], "Complete"), "status": "True"}}}
		}
		if have == nil && strings.Contains(p, "/slipway-rotates-") {
			then["metadata"].(object)["creationTimestamp"] = rotatedAt
		}
		if r.URL.Query().Get("dryRun") == "" {
			a.Objects[p] = then
		}
		return then, http.StatusOK
	case r.Method == http.MethodPut && path.Base(p) == "approval":
		return a.approveRequest(p, body)
	case have == nil:
		return missing, http.StatusNotFound
	case r.Method == http.MethodGet && a.DNSAway > 0 && p == DNSPath:
		a.DNSAway--
		return MergePatch(CopyObject(have), object{"status": object{"availableReplicas": 1}}), http.StatusOK
	case r.Method == http.MethodGet, r.Method == http.MethodPut && strings.Contains(p, "/secrets/"):
		return have, http.StatusOK
	case r.Method == http.MethodPatch:
		a.Objects[p] = MergePatch(CopyObject(have), body)
		a.restartPods(p)
		return a.Objects[p], http.StatusOK
	case r.Method == http.MethodDelete:
		if strings.HasPrefix(p, "/api/v1/nodes/") {
			a.DNSAway = a.DNSMoving
		}
		delete(a.Objects, p)
		return object{"kind": "Status", "apiVersion": "v1", "status": "Success"}, http.StatusOK
	}
	a.T.Errorf("the simulated API does not know %s %s", r.Method, r.URL)
	return missing, http.StatusMethodNotAllowed
}

// listObjects returns all objects at a path; if a node is named, only its pods.
func (a *API) listObjects(p, node string) object {
	if p == "/api/v1/pods" && node == "" {
		a.endPods()
	}
	items := []any{}
	for at, o := range a.Objects {
		all, _ := path.Match(path.Dir(p)+"/namespaces/*/"+path.Base(p), path.Dir(at)) // of all namespaces
		if spec, _ := o["spec"].(object); node != "" && spec["nodeName"] != node {
			continue
		}
		if all || path.Dir(at) == p {
			items = append(items, o)
		}
	}
	return object{"apiVersion": "v1", "kind": "List", "metadata": object{"resourceVersion": a.Revision}, "items": items}
}

func resourceNames() map[string]bool {
	out := map[string]bool{}
	for _, resources := range resourceKinds {
		for plural := range resources {
			out[plural] = true
		}
	}
	return out
}

func resourceList(resources map[string]string) object {
	list := []any{}
	for plural, kind := range resources {
		name, whole := strings.CutPrefix(kind, "!")
		list = append(list, object{"name": plural, "kind": name, "namespaced": !whole, "verbs": []string{"get"}})
	}
	return object{"kind": "APIResourceList", "apiVersion": "v1", "resources": list}
}

// MergePatch is RFC 7396, which is enough to simulate server-side apply with one manager.
func MergePatch(into, patch object) object {
	for k, v := range patch {
		child, isObject := v.(object)
		switch {
		case v == nil:
			delete(into, k)
		case isObject:
			old, _ := into[k].(object)
			if old == nil {
				old = object{}
			}
			into[k] = MergePatch(old, child)
		default:
			into[k] = v
		}
	}
	return into
}
