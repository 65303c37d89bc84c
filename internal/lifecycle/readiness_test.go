package lifecycle

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/module"
)

// unfit returns a world in which many checks fail for an upgrade.
func unfit(t *testing.T) *world {
	t.Helper()
	w := aged(t, "cp1", "w1", "w2")
	w.API.Metrics = `apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.37",` +
		`resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="resource.k8s.io",removed_release="1.39",` +
		`resource="deviceclasses",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="pods.guard.io",` +
		`operation="CREATE",rejection_code="0",type="validating"} 1
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="slow.guard.io",` +
		`operation="CREATE",rejection_code="0",type="validating"} 2
apiserver_admission_webhook_fail_open_count{name="sidecars.guard.io",type="admit"} 2
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="gone.guard.io",` +
		`operation="CREATE",rejection_code="0",type="validating"} 4
`
	w.API.PutObject("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web", object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": "web", "namespace": "shop"},
		"spec":   object{"selector": object{"matchLabels": object{"app": "web"}}},
		"status": object{"disruptionsAllowed": 0, "expectedPods": 2, "currentHealthy": 1, "desiredHealthy": 1},
	})
	w.API.PutObject("/api/v1/namespaces/shop/pods/web", object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web", "namespace": "shop", "labels": object{"app": "web"}},
		"spec": object{"nodeName": "cp1"}, // it moves to w2 when cp1 is drained
	})
	w.API.PutObject("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/guard", object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": object{"name": "guard"},
		"webhooks": []any{
			object{
				"name": "pods.guard.io", "failurePolicy": "Fail",
				"clientConfig": object{"service": object{"namespace": "guard", "name": "guard"}},
			},
			object{"name": "slow.guard.io", "clientConfig": object{"url": "https://guard.example.com"}},
			object{
				"name": "may.guard.io", "failurePolicy": "Ignore",
				"clientConfig": object{"service": object{"namespace": "guard", "name": "guard"}},
			},
		},
	})
	w.API.PutObject("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sidecars", object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": object{"name": "sidecars"},
		"webhooks": []any{object{"name": "sidecars.guard.io", "clientConfig": object{"url": "https://guard.example.com"}}},
	})
	w.API.MarkNodeLost("w1")
	w.Hosts["cp1"].Etcdctl = nil // the etcd member on cp1 does not answer
	return w
}

// All problems that prevent an upgrade are reported at once, and nothing is touched.
func TestReadiness_ReportsAllProblemsBeforeUpgrade(t *testing.T) {
	t.Parallel()
	w := unfit(t)
	_, err := w.service().Prepare(t.Context(), toNewest, nil)
	var list diag.List
	if !errors.As(err, &list) {
		t.Fatalf("%v, want a refusal", err)
	}
	want := []string{"api-removed", "disruption-budget", "webhook-unanswered", "upgrade-node-unready", "etcd-unready"}
	if d := cmp.Diff(want, idsOf(list.Errors())); d != "" {
		t.Errorf("errors (-want +got):\n%s\n%v", d, err)
	}
	found, err := w.service().Precheck(t.Context(), toNewest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, idsOf(found.Errors())); d != "" {
		t.Errorf("errors of the precheck (-want +got):\n%s", d)
	}
	for _, words := range []string{
		"deviceclasses.v1beta1.resource.k8s.io (until 1.39)", "guard/pods.guard.io",
		"flowschemas.v1beta3", "shop/web: 1 of its 2 pods",
		"failed since the API servers started: guard/slow.guard.io: requests were refused; sidecars/sidecars.guard.io: " +
			"requests continued without it",
	} {
		if !strings.Contains(found.Error(), words) {
			t.Errorf("the report does not have %q:\n%v", words, found)
		}
	}
	if strings.Contains(found.Error(), "endpoints") || strings.Contains(found.Error(), "may.guard.io") ||
		strings.Contains(found.Error(), "gone.guard.io") || strings.Contains(found.Error(), "pods.guard.io: requests") {
		t.Errorf("the report has findings that are not problems:\n%v", found)
	}
	r := toNewest
	r.IgnoreChecks = []string{"api-removed", "disruption-budget", "webhook-unanswered", "etcd-unready"}
	_, err = w.service().Prepare(t.Context(), r, nil)
	if !errors.As(err, &list) || cmp.Diff([]string{"upgrade-node-unready"}, idsOf(list.Errors())) != "" {
		t.Errorf("with ignored checks, the error is %v", err)
	}
	w.wantVersions(map[string]string{"cp1": older, "w1": older, "w2": older})
	if _, ops := w.status(); len(ops) != 1 {
		t.Errorf("operations %v", ops)
	}
}

func idsOf(list diag.List) (out []string) {
	for _, d := range list {
		if len(out) == 0 || out[len(out)-1] != d.ID {
			out = append(out, d.ID)
		}
	}
	return out
}

// An API server must not get too far ahead of a kubelet. This holds for a kubelet that the
// next upgrade step updates and for one that Slipway does not manage.
func TestReadiness_RefusesUpgradeWithTooOldKubelet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node, version, id string
	}{
		"unmanaged node, close enough": {"alien", "v1.34.2", ""},
		"unmanaged node, too old":      {"alien", "v1.33.9", "kubelet-skew"},
		"managed node, too old":        {"w1", "v1.33.9", "kubelet-skew"},
	} {
		t.Run(name, func(t *testing.T) {
			w := aged(t, "cp1", "w1")
			w.API.RegisterNode("alien", "alien")
			w.API.ReportVersion("alien", older)
			w.API.ReportVersion(tc.node, tc.version)
			p, err := w.service().Prepare(t.Context(), toNewest, nil)
			if tc.id == "" {
				w.prepared(p, err)
				return
			}
			wantRefused(t, err, tc.id)
			r := toNewest
			r.IgnoreChecks = []string{tc.id}
			w.prepared(w.service().Prepare(t.Context(), r, nil))
		})
	}
}

// The bundles of all upgrade steps must be available before the first step starts.
func TestReadiness_ReportsMissingBundlesOfUpgradePath(t *testing.T) {
	t.Parallel()
	w := aged(t, "cp1")
	s := w.service()
	c, err := s.Cluster(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	c.Spec.Kubernetes.Version, c.Status.Version = "v1.35.6", "v1.35.6"
	r := UpgradeRequest{Version: "v1.37.1"}
	p := &prepared{svc: s, recorded: c, bundle: s.bundles.NewSource(module.Env{}, []string{"arm64"})}
	missing, unknown, err := r.wayThere(t.Context(), p)
	if d := cmp.Diff([]string{"v1.37.1"}, missing); d != "" || unknown != nil || err != nil {
		t.Errorf("missing (-want +got):\n%s unknown %v, %v", d, unknown, err)
	}
	p.bundle = s.bundles.NewSource(module.Env{}, []string{"amd64"})
	if missing, _, err = r.wayThere(t.Context(), p); len(missing) > 0 || err != nil {
		t.Errorf("missing %v, %v", missing, err)
	}
}
