package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var switched = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

// tokenPod is a pod that holds a token, or not, and was made so long before or
// after the switch.
func tokenPod(name, ownerKind, ownerName, phase string, made time.Duration, token bool) string {
	owner, volume := "", `{"name":"v","emptyDir":{}}`
	if ownerKind != "" {
		owner = fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":%q,"name":%q,"uid":"u","controller":true}]`, ownerKind, ownerName)
	}
	if token {
		volume = `{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}`
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"n","creationTimestamp":%q%s},`+
		`"spec":{"volumes":[%s]},"status":{"phase":%q}}`,
		name, switched.Add(made).Format(time.RFC3339), owner, volume, phase)
}

func podListJSON(pods ...string) string {
	return `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(pods, ",") + `]}`
}

// TestTrustFindTokenHolders_ReturnsWorkloadsOfOlderPods: each running pod that is older and
// has a token is reported by the workload that recreates it, once.
func TestTrustFindTokenHolders_ReturnsWorkloadsOfOlderPods(t *testing.T) {
	const replicaSet = "GET /apis/apps/v1/namespaces/n/replicasets/web-1"
	web := `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web-1","namespace":"n",` +
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"w","controller":true}]}}`
	f := newFakeAPI(t,
		call{request: "GET /api/v1/pods", answer: podListJSON(
			tokenPod("web-1-a", "ReplicaSet", "web-1", "Running", -time.Minute, true),
			tokenPod("web-1-b", "ReplicaSet", "web-1", "Running", -time.Minute, true),
			tokenPod("agent-a", "DaemonSet", "agent", "Pending", -time.Minute, true),
			tokenPod("lone", "", "", "Running", -time.Second, true),
			tokenPod("as-the-switch", "", "", "Running", 0, true),
			tokenPod("younger", "", "", "Running", time.Minute, true),
			tokenPod("ended", "Job", "batch", "Succeeded", -time.Minute, true),
			tokenPod("without", "", "", "Running", -time.Minute, false),
		)},
		call{request: replicaSet, answer: web},
		call{request: replicaSet, answer: web},
	)
	got, err := f.newClient().Trust().FindTokenHolders(t.Context(), switched)
	if err != nil {
		t.Fatal(err)
	}
	want := []Workload{{"DaemonSet", "n", "agent"}, {"Deployment", "n", "web"}, {"Pod", "n", "lone"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTrustFindTokenHolders_ResolvesDeploymentOfDeletedReplicaSet: a Deployment that keeps no
// older ReplicaSets can have terminating pods whose ReplicaSet no longer exists. Pods of
// a ReplicaSet that a user created belong to that ReplicaSet.
func TestTrustFindTokenHolders_ResolvesDeploymentOfDeletedReplicaSet(t *testing.T) {
	const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	hashed := func(hash string) string {
		return strings.Replace(tokenPod("web-6f-a", "ReplicaSet", "web-6f", "Running", -time.Minute, true),
			`"namespace":"n",`, `"namespace":"n","labels":{"pod-template-hash":"`+hash+`"},`, 1)
	}
	for hash, want := range map[string]string{"6f": "[Deployment n/web]", "": "[ReplicaSet n/web-6f]"} {
		f := newFakeAPI(t,
			call{request: "GET /api/v1/pods", answer: podListJSON(hashed(hash))},
			call{request: "GET /apis/apps/v1/namespaces/n/replicasets/web-6f", answer: gone, status: 404},
		)
		got, err := f.newClient().Trust().FindTokenHolders(t.Context(), switched)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q: %v, %v", hash, got, err)
		}
	}
}

// TestTrustFindCAHolders_FindsEveryWayToMountTheCA: a pod has the CA of the API servers with
// its token, or from the ConfigMap alone, in a volume or a variable.
func TestTrustFindCAHolders_FindsEveryWayToMountTheCA(t *testing.T) {
	pod := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"n","creationTimestamp":%q},"spec":%s}`,
			name, switched.Add(-time.Minute).Format(time.RFC3339), spec)
	}
	const ref = `{"name":"kube-root-ca.crt"}`
	f := newFakeAPI(t, call{request: "GET /api/v1/pods", answer: podListJSON(
		tokenPod("a-token", "", "", "Running", -time.Minute, true),
		tokenPod("b-nothing", "", "", "Running", -time.Minute, false),
		pod("c-volume", `{"volumes":[{"name":"v","configMap":`+ref+`}]}`),
		pod("d-projected", `{"volumes":[{"name":"v","projected":{"sources":[{"configMap":`+ref+`}]}}]}`),
		pod("e-variables", `{"containers":[{"name":"c","envFrom":[{"configMapRef":`+ref+`}]}]}`),
		pod("f-variable",
			`{"initContainers":[{"name":"c","env":[{"name":"CA","valueFrom":{"configMapKeyRef":{"name":"kube-root-ca.crt","key":"ca.crt"}}}]}]}`),
		pod("g-another",
			`{"volumes":[{"name":"v","configMap":{"name":"other"}}],"containers":[{"name":"c","env":[{"name":"CA","value":"kube-root-ca.crt"}]}]}`),
	)})
	got, err := f.newClient().Trust().FindCAHolders(t.Context(), switched)
	if err != nil {
		t.Fatal(err)
	}
	want := []Workload{
		{"Pod", "n", "a-token"},
		{"Pod", "n", "c-volume"},
		{"Pod", "n", "d-projected"},
		{"Pod", "n", "e-variables"},
		{"Pod", "n", "f-variable"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
