package lifecycle

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

func now() time.Time { return time.Now() }

type object = map[string]any

// An api is an API server in memory: objects by path, applied by merging. It knows only
// the kinds that the pipelines use.
type api struct {
	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	objects map[string]object
	members map[string]string // etcd members by name, with their role
	down    map[string]bool   // members that do not answer
	at      map[string]string // endpoint → member name
	running bool              // its kubelet runs
	bound   bool              // the administrator has rights
	// moving is how many more queries a pod of CoreDNS is missing after a node was
	// deleted. away is how many of these queries are left.
	moving, away int
	// guarded is the name of a node that must not be changed.
	guarded string
	// settings holds the settings of the cluster that are saved in it.
	settings string
	// proxy holds the settings that pods of kube-proxy use, and proxyNext the settings
	// that they read at their next start.
	proxy, proxyNext string
	// slices is the number of changes of EndpointSlices. behind lists the nodes whose
	// kube-proxy has received none of them.
	slices int
	behind map[string]bool
	// ends holds the results of Jobs that do not complete at once, by Job name.
	ends map[string]string
	// metrics holds the metrics of the API server.
	metrics string

	managedEtcd *members
	minors      minors

	// revision is the revision of etcd, if it matters. done holds the steps of a restore,
	// by machine: "swap cp1".
	revision string
	bump     uint64 // how far a restore raises the revision above the snapshot
	unwell   string // the problem that blocks operations on etcd
	done     map[string]bool
	// rescuing reports whether the restore is a rescue of the members in left.
	rescuing bool
	left     []string
	// servers holds the encryption keys that each API server has read, by machine. sealed
	// holds the start of each secret's value in etcd.
	servers, sealed map[string]string
	// shows, if not nil, returns the certificate of the API servers.
	shows func() *tls.Certificate
	// kubeletShows, if not nil, returns the certificate of the kubelet at an address.
	kubeletShows func(address string) *tls.Certificate
	// ending is how many more times the list of pods includes terminating pods.
	ending int
	// wrote, if not nil, is called with each request that has changed something.
	wrote func(what string)
}

// kinds maps each group and version to its resources, plural to kind. A "!" marks a
// cluster-scoped kind.
var kinds = map[string]map[string]string{
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

func newAPI(t testing.TB) *api {
	a := &api{
		t: t, objects: map[string]object{}, members: map[string]string{}, down: map[string]bool{}, at: map[string]string{},
		servers: map[string]string{}, sealed: map[string]string{}, managedEtcd: &members{run: map[string]string{}}, minors: newMinors(),
	}
	a.server = httptest.NewUnstartedServer(a)
	a.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.server.TLS = &tls.Config{
		ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{served()},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if a.shows == nil {
				return nil, nil //nolint:nilnil // the one that all servers show
			}
			return a.shows(), nil
		},
	}
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

// served returns the certificate of all test servers. It has an ECDSA key: the key of
// httptest takes too long to sign thousands of connections.
var served = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for i := byte(11); i < 40; i++ { // kubelets show it as well
		c.IPAddresses = append(c.IPAddresses, net.IPv4(192, 0, 2, i))
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
})

// clone returns another server with the same objects.
func (a *api) clone() *api {
	c := newAPI(a.t)
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, o := range a.objects {
		c.objects[p] = copied(o)
	}
	c.members, c.down = maps.Clone(a.members), maps.Clone(a.down)
	c.servers, c.sealed = maps.Clone(a.servers), maps.Clone(a.sealed)
	c.revision, c.bump, c.done = a.revision, a.bump, maps.Clone(a.done)
	c.rescuing, c.left = a.rescuing, a.left
	c.slices = a.slices
	c.running, c.bound, c.managedEtcd = a.running, a.bound, a.managedEtcd.clone()
	c.minors, c.proxy, c.proxyNext = a.minors.clone(), a.proxy, a.proxyNext
	return c
}

// proxyCounters returns the counters of kube-proxy on a node.
func (a *api) proxyCounters(node string) (c op.ProxyCounters) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.behind[node] {
		c.Received = float64(a.slices)
	}
	return c
}

// proxies plays kubeadm's phase of kube-proxy. Its pods restart only if there were none,
// or if their DaemonSet has the annotation for a restart. runsProxy reports whether they
// run in a mode.
func (a *api) proxies(settings string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxyNext = settings; a.objects[proxyPath] == nil || a.proxyNoted() {
		a.proxy = settings
	}
}

func (a *api) runsProxy(mode string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxyNoted() {
		a.proxy = a.proxyNext
	}
	return strings.Contains(a.proxy, "\nmode: "+mode+"\n")
}

// proxyNoted reports whether the DaemonSet of kube-proxy has the annotation that restarts
// its pods.
func (a *api) proxyNoted() bool {
	_, noted, _ := unstructured.NestedString(a.objects[proxyPath], "spec", "template", "metadata", "annotations", "slipway.dev/restarted-for")
	return noted
}

// The roles of an etcd member.
const (
	etcdLearns = "learner"
	etcdVotes  = "voter"
)

func (a *api) etcd(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.members[name]
}

func (a *api) setEtcd(name, is string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.members[name] = is; is == "" {
		delete(a.members, name)
		delete(a.minors.is, name)
		delete(a.minors.away, name)
	}
}

// anyVoter reports whether a voter answers at one of these endpoints.
func (a *api) anyVoter(endpoints []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(endpoints, func(url string) bool {
		name := a.at[url]
		return a.members[name] == etcdVotes && !a.down[name]
	})
}

// etcdGoes returns the members that an operation would remove. The member of a host that
// is down does not answer.
func (a *api) etcdGoes(o op.EtcdRemove) (gone []string, refused *op.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o.Peers = slices.DeleteFunc(slices.Clone(o.Peers), func(p op.EtcdPeer) bool { return p.Stays })
	if o.Cert == module.EtcdClientCert {
		return a.managedEtcd.goes(o, a.down)
	}
	voters, up := 0, 0
	for name, is := range a.members {
		if is == etcdVotes {
			if voters++; !a.down[name] {
				up++
			}
		}
	}
	for name, is := range a.members {
		known := func(p op.EtcdPeer) bool { return p.Name == name }
		if is == etcdLearns && a.down[name] && len(o.Known) > 0 && !slices.ContainsFunc(append(o.Known, o.Peers...), known) {
			gone = append(gone, name)
		}
	}
	for _, p := range o.Peers {
		is := a.members[p.Name]
		if is == "" || p.Dead && !a.down[p.Name] {
			continue
		}
		gone = append(gone, p.Name)
		if is == etcdLearns {
			continue
		}
		if !a.down[p.Name] {
			up--
		}
		if voters--; up < voters/2+1 {
			return nil, &op.Error{Reason: op.IDEtcdQuorum, Message: "too few would answer"}
		}
	}
	return gone, nil
}

// lost switches a machine off, together with its etcd member.
func (a *api) lost(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down[name] = true
}

// learner returns the member that is being added.
func (a *api) learner() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, is := range a.members {
		if is == etcdLearns {
			return name
		}
	}
	return ""
}

func (a *api) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = true
}

func (a *api) runs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

// bind plays kubeadm granting rights to the administrator, before its first request.
func (a *api) bind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound = true
}

func copied(o object) object {
	raw, _ := json.Marshal(o)
	out := object{}
	if o != nil {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

func (a *api) address() string { return a.server.Listener.Addr().String() }

func (a *api) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
}

// kubeconfig returns a kubeconfig for the name in the server's certificate.
func (a *api) kubeconfig() string {
	cert, key := admin()
	return pkitest.MakeKubeconfig("https://example.com:6443", string(a.ca()), "", cert, key)
}

// admin returns the administrator's certificate, signed by the certificate of all servers,
// and its key.
var admin = sync.OnceValues(func() (cert, key string) {
	ca := served()
	signer, text, err := pki.NewKey()
	if err != nil {
		panic(err)
	}
	signed, err := pki.SignCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: "admin.conf"}, NotBefore: certTime.Add(-certYear), NotAfter: certTime.Add(5 * certYear),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, signer.Public(), ca.PrivateKey.(crypto.Signer))
	if err != nil {
		panic(err)
	}
	return string(signed), string(text)
})

// adminSecret returns a part of the administrator's key, as it is in a kubeconfig.
func adminSecret() string {
	_, key := admin()
	return base64.StdEncoding.EncodeToString([]byte(key))[60:120]
}

func (a *api) put(p string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[p] = o
}

func (a *api) has(p string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[p] != nil
}

func (a *api) register(node, machineID string) {
	if p := "/api/v1/nodes/" + node; !a.has(p) {
		a.put(p, object{
			"apiVersion": "v1", "kind": "Node", "metadata": object{"name": node}, "spec": object{},
			"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}, "nodeInfo": object{"machineID": machineID}},
		})
	}
}

// report plays the kubelet of a node reporting Ready.
func (a *api) report(node string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects["/api/v1/nodes/"+node]["status"].(object)["conditions"] = []any{object{
		"type": "Ready", "status": "True",
		"lastHeartbeatTime": at.UTC().Format(time.RFC3339),
	}}
}

// kubelet plays the kubelet of a node reporting its version.
func (a *api) kubelet(node, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.objects["/api/v1/nodes/"+node]; n != nil {
		n["status"].(object)["nodeInfo"].(object)["kubeletVersion"] = version
	}
}

// lose makes the cluster report that a node does not answer.
func (a *api) lose(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects["/api/v1/nodes/"+node]["status"].(object)["conditions"] = []any{object{"type": "Ready", "status": "Unknown"}}
}

// drop deletes a node.
func (a *api) drop(node string) { a.remove("/api/v1/nodes/" + node) }

func (a *api) remove(p string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, p)
}

const dnsPath = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"

func (a *api) installDNS() {
	if !a.has(dnsPath) {
		a.install("dns")
		a.put(dnsPath, merge(a.objects[dnsPath], object{"status": ready()}))
	}
}

// ready returns the status of a Deployment whose pods are all ready.
func ready() object {
	return object{"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}
}

const proxyPath = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"

// manifestsOf returns the manifests of kubeadm for an add-on.
func manifestsOf(what string) string {
	if strings.HasSuffix(what, "proxy") {
		return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kube-proxy, namespace: kube-system}\nspec: {image: proxy}\n---\n" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-proxy, namespace: kube-system}\ndata: {config.conf: settings}\n"
	}
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: coredns, namespace: kube-system}\n" +
		"spec: {replicas: 2, selector: {matchLabels: {k8s-app: kube-dns}}, image: dns}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {Corefile: not ours}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system, resourceVersion: \"0\"}\n" +
		"spec: {clusterIP: 10.96.0.10}\n"
}

// install plays kubeadm's add-on phases.
func (a *api) install(what string) {
	objs, err := kube.DecodeObjects([]byte(manifestsOf(what)))
	if err != nil {
		a.t.Fatal(err)
	}
	plural := map[string]string{
		"Deployment": "apis/apps/v1/namespaces/kube-system/deployments",
		"DaemonSet":  "apis/apps/v1/namespaces/kube-system/daemonsets",
		"ConfigMap":  "api/v1/namespaces/kube-system/configmaps",
		"Service":    "api/v1/namespaces/kube-system/services",
	}
	for _, o := range objs {
		if o.GetName() != "coredns" || o.GetKind() != "ConfigMap" {
			o.SetResourceVersion("")
			a.put("/"+plural[o.GetKind()]+"/"+o.GetName(), copied(o.Object))
		}
	}
}

const kubeletConfigPath = "/api/v1/namespaces/kube-system/configmaps/kubelet-config"

// record plays kubeadm's phase upload-config.
func (a *api) record() { a.wroteRecord("kubeadm", "cgroupDriver: systemd\n") }

// wroteRecord plays a client that writes the configuration for joining kubelets.
func (a *api) wroteRecord(by, text string) {
	a.put(kubeletConfigPath, object{
		"apiVersion": "v1", "kind": "ConfigMap", "data": object{"kubelet": text},
		"metadata": object{"name": "kubelet-config", "namespace": "kube-system", "managedFields": []any{
			object{"manager": by, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": object{"f:data": object{"f:kubelet": object{}}}},
		}},
	})
	a.put("/api/v1/namespaces/kube-system/configmaps/kubeadm-config", object{
		"apiVersion": "v1", "kind": "ConfigMap", "data": object{"ClusterConfiguration": "clusterName: prod\n"},
		"metadata": object{"name": "kubeadm-config", "namespace": "kube-system"},
	})
}

// tokens returns the secrets of bootstrap tokens.
func (a *api) tokens() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for p, o := range a.objects {
		if strings.Contains(p, "/secrets/bootstrap-token-") {
			data := o["data"].(object)
			text := func(k string) string { b, _ := base64.StdEncoding.DecodeString(data[k].(string)); return string(b) }
			out = append(out, text("token-id")+"."+text("token-secret"))
		}
	}
	return out
}

func (a *api) knowsToken(in string) bool {
	return slices.ContainsFunc(a.tokens(), func(token string) bool { return strings.Contains(in, token) })
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if shown := r.TLS.PeerCertificates; len(shown) == 0 || !strings.HasPrefix(shown[0].Subject.CommonName, "admin.conf") {
		a.t.Errorf("%s %s without the administrator's certificate", r.Method, r.URL)
	}
	var body object
	raw, _ := io.ReadAll(r.Body)
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			a.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}
	if r.URL.Path == "/metrics" {
		_, _ = io.WriteString(w, a.metrics)
		return
	}
	if r.URL.Path == "/readyz" {
		_, _ = io.WriteString(w, "ok")
		return
	}
	code, answer := a.serve(r, body)
	if a.wrote != nil && r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
		a.wrote(r.Method + " " + r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(answer)
}

// serve handles a request. It encodes the response under the lock, because the next
// request may change the objects in it.
func (a *api) serve(r *http.Request, body object) (code int, answer []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has, code := a.answer(r, body)
	answer, err := json.Marshal(has)
	if err != nil {
		a.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	return code, answer
}

func (a *api) answer(r *http.Request, body object) (any, int) {
	p := r.URL.Path
	if resources, ok := kinds[p]; ok {
		return discovery(resources), http.StatusOK
	}
	_, collection := plurals()[path.Base(p)]
	if r.Method != http.MethodGet && r.Method != http.MethodDelete && r.URL.Query().Get("dryRun") == "" {
		defer a.seal(p, body)
	}
	have := a.objects[p]
	if strings.Contains(p, "/endpointslices/") && (r.Method == http.MethodPatch || r.Method == http.MethodDelete && have != nil) {
		a.slices++
	}
	missing := object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
		"message": p + " is not there",
	}
	switch {
	case !a.bound, r.Method == http.MethodPatch && p == "/api/v1/nodes/"+a.guarded:
		missing["reason"], missing["code"] = "Forbidden", 403
		return missing, http.StatusForbidden
	case r.Method == http.MethodGet && collection && strings.Contains(r.URL.RawQuery, "service-account-token"):
		return a.tokenSecrets(), http.StatusOK
	case r.Method == http.MethodGet && collection:
		_, node, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		list := a.list(p, node)
		if label := r.URL.Query().Get("labelSelector"); label != "" && path.Base(p) == "pods" {
			list["items"] = append(list["items"].([]any), a.podsOf(path.Dir(p), label)...)
		}
		return list, http.StatusOK
	case r.Method == http.MethodPost && path.Base(p) == "eviction":
		return a.evict(path.Dir(p))
	case r.Method == http.MethodPost && collection:
		data := object{}
		for k, v := range body["stringData"].(object) {
			data[k] = base64.StdEncoding.EncodeToString([]byte(v.(string)))
		}
		body["data"] = data
		delete(body, "stringData")
		a.objects[p+"/"+body["metadata"].(object)["name"].(string)] = body
		return body, http.StatusCreated
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		then := merge(copied(have), body)
		if have == nil && path.Base(path.Dir(p)) == "deployments" { // its pods are there at once
			then["status"] = ready()
		}
		if path.Base(path.Dir(p)) == "jobs" { // which are done at once
			then["status"] = object{"conditions": []any{object{"type": cmp.Or(a.ends[path.Base(p)], "Complete"), "status": "True"}}}
		}
		if have == nil && strings.Contains(p, "/slipway-rotates-") {
			then["metadata"].(object)["creationTimestamp"] = rotatedAt
		}
		if r.URL.Query().Get("dryRun") == "" {
			a.objects[p] = then
		}
		return then, http.StatusOK
	case r.Method == http.MethodPut && path.Base(p) == "approval":
		return a.approves(p, body)
	case have == nil:
		return missing, http.StatusNotFound
	case r.Method == http.MethodGet && a.away > 0 && p == dnsPath:
		a.away--
		return merge(copied(have), object{"status": object{"availableReplicas": 1}}), http.StatusOK
	case r.Method == http.MethodGet, r.Method == http.MethodPut && strings.Contains(p, "/secrets/"):
		return have, http.StatusOK
	case r.Method == http.MethodPatch:
		a.objects[p] = merge(copied(have), body)
		a.rolled(p)
		return a.objects[p], http.StatusOK
	case r.Method == http.MethodDelete:
		if strings.HasPrefix(p, "/api/v1/nodes/") {
			a.away = a.moving
		}
		delete(a.objects, p)
		return object{"kind": "Status", "apiVersion": "v1", "status": "Success"}, http.StatusOK
	}
	a.t.Errorf("the API in memory does not know %s %s", r.Method, r.URL)
	return missing, http.StatusMethodNotAllowed
}

// evict deletes a pod. It refuses this as long as there is a disruption budget in the
// namespace of the pod.
func (a *api) evict(pod string) (any, int) {
	budgets := strings.Replace(path.Dir(path.Dir(pod)), "/api/v1/", "/apis/policy/v1/", 1) + "/poddisruptionbudgets"
	for at := range a.objects {
		if path.Dir(at) == budgets {
			return object{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": http.StatusTooManyRequests,
				"message": "Cannot evict pod as it would violate the pod's disruption budget.",
			}, http.StatusTooManyRequests
		}
	}
	delete(a.objects, pod)
	return object{"kind": "Status", "apiVersion": "v1", "status": "Success"}, http.StatusCreated
}

// list returns all objects at a path; if a node is named, only its pods.
func (a *api) list(p, node string) object {
	if p == "/api/v1/pods" && node == "" {
		a.end()
	}
	items := []any{}
	for at, o := range a.objects {
		all, _ := path.Match(path.Dir(p)+"/namespaces/*/"+path.Base(p), path.Dir(at)) // of all namespaces
		if spec, _ := o["spec"].(object); node != "" && spec["nodeName"] != node {
			continue
		}
		if all || path.Dir(at) == p {
			items = append(items, o)
		}
	}
	return object{"apiVersion": "v1", "kind": "List", "metadata": object{"resourceVersion": a.revision}, "items": items}
}

// end plays kubelets, which take some time to stop pods.
func (a *api) end() {
	if a.ending--; a.ending >= 0 {
		return
	}
	maps.DeleteFunc(a.objects, func(at string, o object) bool {
		meta, _ := o["metadata"].(object)
		return strings.Contains(at, "/pods/") && meta["deletionTimestamp"] != nil
	})
}

// podsOf returns the available pods of the workloads in a namespace with these labels.
func (a *api) podsOf(namespace, selected string) (out []any) {
	selector, err := labels.Parse(selected)
	if err != nil {
		a.t.Error(err)
	}
	prefix := strings.Replace(namespace, "/api/v1/", "/apis/apps/v1/", 1)
	for at, o := range a.objects {
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
			a.t.Errorf("%s: %v", at, err)
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

func plurals() map[string]bool {
	out := map[string]bool{}
	for _, resources := range kinds {
		for plural := range resources {
			out[plural] = true
		}
	}
	return out
}

func discovery(resources map[string]string) object {
	list := []any{}
	for plural, kind := range resources {
		name, whole := strings.CutPrefix(kind, "!")
		list = append(list, object{"name": plural, "kind": name, "namespaced": !whole, "verbs": []string{"get"}})
	}
	return object{"kind": "APIResourceList", "apiVersion": "v1", "resources": list}
}

// merge is RFC 7396, which is enough to play server-side apply with one manager.
func merge(into, patch object) object {
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
			into[k] = merge(old, child)
		default:
			into[k] = v
		}
	}
	return into
}
