package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/internal/testutil/golden"
)

// absent is the name of an object that does not exist.
const absent = "absent"

// A caller is someone with or without rights.
type caller struct {
	name   string
	config *rest.Config
}

// newCallers returns callers with each kind of credentials, when their rights are in effect. Their
// roles are bound for the time of the test.
func newCallers(t *testing.T, namespace string) []caller {
	t.Helper()
	i := useIssuer(t, "oidc:")
	bindRole(t, "slipway-viewer", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "viewers"})
	bindRole(t, "slipway-operator", rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: "operator"})
	bindRole(t, "slipway-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "oidc:admins"})
	callers := []caller{
		{"anonymous", rest.AnonymousClientConfig(server.Admin)},
		{"revoked", newRevoked(t, namespace)},
		{"stranger", issueUser(t, "stranger")},
		{"viewer", issueUser(t, "vera", "viewers")},
		{"operator", newAccount(t, namespace, "operator")},
		{"admin", withToken(i.sign(t, "ada", "admins"))},
		{"owner", server.Admin},
	}
	for _, c := range callers {
		if role := "slipway-" + c.name; len(roleRights[role]) > 0 {
			waitForRole(t, c.config, role)
		}
	}
	return callers
}

// newRevoked returns a caller whose service account was deleted.
func newRevoked(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	config := newAccount(t, namespace, "revoked")
	if err := server.Client(t).CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "revoked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForName(t, config.BearerToken, "")
	return config
}

// A rightTable has the names of callers who have a right, by the right.
type rightTable struct {
	sync.Mutex
	rows map[string][]string
}

// add saves that a caller has a right.
func (r *rightTable) add(right, caller string) {
	r.Lock()
	defer r.Unlock()
	r.rows[right] = append(r.rows[right], caller)
}

// text returns the table: one row for each kind, and the verbs that the same callers have.
func (r *rightTable) text(order []caller) string {
	byKind := map[string]map[string][]string{}
	for right, callers := range r.rows {
		kind, verb, _ := strings.Cut(right, " ")
		var names []string
		for _, c := range order {
			if slices.Contains(callers, c.name) {
				names = append(names, c.name)
			}
		}
		who := strings.Join(names, " ")
		if byKind[kind] == nil {
			byKind[kind] = map[string][]string{}
		}
		byKind[kind][who] = append(byKind[kind][who], verb)
	}
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintln(&out, kind)
		for _, who := range slices.Sorted(maps.Keys(byKind[kind])) {
			fmt.Fprintf(&out, "  %s: %s\n", strings.Join(slices.Sorted(slices.Values(byKind[kind][who])), " "), who)
		}
	}
	return out.String()
}

// A target is a request to check, and the right that it needs.
type target struct{ right, method, path string }

// TestCallers_HaveExpectedRights sends a request for each verb of each kind as each caller. The
// kinds come from discovery, so a new kind changes the table.
func TestCallers_HaveExpectedRights(t *testing.T) {
	namespace := server.NewNamespace(t)
	callers := newCallers(t, namespace)
	targets := append(listTargets(t, namespace), pathTargets()...)
	table := &rightTable{rows: map[string][]string{}}
	var running sync.WaitGroup
	for _, c := range callers {
		running.Go(func() {
			client, err := rest.HTTPClientFor(c.config)
			if err != nil {
				t.Error(err)
				return
			}
			for _, to := range targets {
				status := sendProbe(t, client, to)
				switch {
				case !slices.Contains(knownStatuses, status):
					t.Errorf("%s: %s: got %d, which does not show the right", c.name, to.right, status)
				case status == http.StatusUnauthorized && c.name != "anonymous" && c.name != "revoked":
					t.Errorf("%s: %s: got %d", c.name, to.right, status)
				case status != http.StatusUnauthorized && status != http.StatusForbidden:
					table.add(to.right, c.name)
				}
			}
			for _, verb := range ownVerbs {
				if canDo(t, c.config, verb) {
					table.add(schema.GroupResource{Group: verb.Group, Resource: verb.Resource}.String()+" "+verb.Verb, c.name)
				}
			}
		})
	}
	running.Wait()
	golden.Check(t, "testdata/rights.txt", table.text(callers))
}

// knownStatuses are the statuses of requests that were authorised or refused.
var knownStatuses = []int{
	http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
	http.StatusMethodNotAllowed, http.StatusConflict, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
}

// listTargets returns the requests for all kinds of discovery.
func listTargets(t *testing.T, namespace string) (out []target) {
	t.Helper()
	_, lists, err := server.Client(t).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		at := "/apis/" + list.GroupVersion
		if version.Group == "" {
			at = "/api/v1"
		}
		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			collection := at + "/" + resource
			if r.Namespaced {
				collection = at + "/namespaces/" + namespace + "/" + resource
			}
			name := schema.GroupResource{Group: version.Group, Resource: r.Name}.String()
			for _, verb := range r.Verbs {
				out = append(out, newTarget(name, verb, collection, sub))
			}
		}
	}
	return out
}

// newTarget returns the request of a verb. It changes nothing: the object does not exist, or the
// body is not valid.
func newTarget(name, verb, collection, sub string) target {
	object := collection + "/" + absent
	if sub != "" {
		object += "/" + sub
	}
	to := target{right: name + " " + verb}
	switch verb {
	case "create":
		to.method, to.path = http.MethodPost, collection
		if sub != "" {
			to.path = object
		}
	case "list":
		to.method, to.path = http.MethodGet, collection+"?limit=1"
	case "watch":
		to.method, to.path = http.MethodGet, collection+"?watch=true&timeoutSeconds=1"
	case "deletecollection":
		to.method, to.path = http.MethodDelete, collection+"?dryRun=All&labelSelector=absent=absent"
	default:
		to.method = map[string]string{
			"get": http.MethodGet, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
		}[verb]
		to.path = object
	}
	return to
}

// pathTargets returns the requests for paths that are not resources.
func pathTargets() (out []target) {
	for _, path := range []string{
		"/", "/.well-known/openid-configuration", "/api", "/apis", "/configz", "/debug/pprof/", "/healthz", "/livez", "/livez/etcd",
		"/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/readyz/etcd", "/slipway/v1/server/backup", "/version",
	} {
		out = append(out, target{right: path + " get", method: http.MethodGet, path: path})
	}
	return out
}

// sendProbe sends a request and returns the status of its response. It repeats the request if the
// server is busy, and returns 0 if no request has a response.
func sendProbe(t *testing.T, client *http.Client, to target) (status int) {
	t.Helper()
	var err error
	for range probeAttempts {
		if status, err = sendProbeOnce(t, client, to); err == nil && !isBusyStatus(status) || !pause(t.Context(), attemptPause) {
			break
		}
	}
	if err != nil {
		t.Errorf("%s: %v", to.right, err)
	}
	return status
}

// probeAttempts limits the requests of one probe.
const probeAttempts = 10

func sendProbeOnce(t *testing.T, client *http.Client, to target) (int, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // ends a watch
	body := io.Reader(http.NoBody)
	if to.method == http.MethodPost || to.method == http.MethodPut || to.method == http.MethodPatch {
		body = bytes.NewReader([]byte("[")) // refused, but only after the authorisation
	}
	request, err := http.NewRequestWithContext(ctx, to.method, server.URL()+to.path, body)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if to.method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

// ownVerbs are verbs that are not verbs of requests.
var ownVerbs = []authorizationv1.ResourceAttributes{
	{Verb: "approve", Group: "slipway.dev", Resource: "clusters"},
	{Verb: "exec", Group: "slipway.dev", Resource: "clusters"},
	{Verb: "kubeconfig", Group: "slipway.dev", Resource: "clusters"},
	{Verb: "cancel", Group: "slipway.dev", Resource: "operations"},
	{Verb: "impersonate", Resource: "users"},
	{Verb: "impersonate", Resource: "groups"},
	{Verb: "impersonate", Resource: "serviceaccounts"},
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
	{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
	{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers"},
	{Verb: "sign", Group: "certificates.k8s.io", Resource: "signers"},
}

// canDo asks the server whether a caller has a right. Callers without a name cannot ask.
func canDo(t *testing.T, config *rest.Config, attributes authorizationv1.ResourceAttributes) bool {
	t.Helper()
	var allowed bool
	err := repeatIfBusy(t.Context(), func() (err error) {
		allowed, err = askRight(t.Context(), t, config, attributes)
		return err
	})
	if err != nil && !apierrors.IsUnauthorized(err) {
		t.Errorf("%s %s: %v", attributes.Verb, attributes.Resource, err)
	}
	return allowed
}

// TestAnonymous_ReadsOnlyHealthAndVersion checks the only paths without credentials.
func TestAnonymous_ReadsOnlyHealthAndVersion(t *testing.T) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(server.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range append(listTargets(t, "default"), pathTargets()...) {
		want := http.StatusUnauthorized
		if slices.Contains([]string{"/livez", "/readyz", "/version"}, to.path) {
			want = http.StatusOK
		}
		if got := sendProbe(t, client, to); got != want {
			t.Errorf("%s: got %d, want %d", to.right, got, want)
		}
	}
}
