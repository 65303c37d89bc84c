package kube

import (
	"encoding/base64"
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

// TestFindTokenHolders_ReturnsWorkloadsOfOlderPods: each running pod that is older and
// has a token is reported by the workload that recreates it, once.
func TestFindTokenHolders_ReturnsWorkloadsOfOlderPods(t *testing.T) {
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
	got, err := f.newClient().FindTokenHolders(t.Context(), switched)
	if err != nil {
		t.Fatal(err)
	}
	want := []Workload{{"DaemonSet", "n", "agent"}, {"Deployment", "n", "web"}, {"Pod", "n", "lone"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFindCAHolders_FindsEveryWayToMountTheCA: a pod has the CA of the API servers with
// its token, or from the ConfigMap alone, in a volume or a variable.
func TestFindCAHolders_FindsEveryWayToMountTheCA(t *testing.T) {
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
	got, err := f.newClient().FindCAHolders(t.Context(), switched)
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

// TestFindTokenHolders_ResolvesDeploymentOfDeletedReplicaSet: a Deployment that keeps no
// older ReplicaSets can have terminating pods whose ReplicaSet no longer exists. Pods of
// a ReplicaSet that a user created belong to that ReplicaSet.
func TestFindTokenHolders_ResolvesDeploymentOfDeletedReplicaSet(t *testing.T) {
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
		got, err := f.newClient().FindTokenHolders(t.Context(), switched)
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q: %v, %v", hash, got, err)
		}
	}
}

// TestRollsOnRestart_IsFalseIfPausedOrManual: a workload that is paused, or updates its
// pods only on deletion, creates no new pods.
func TestRollsOnRestart_IsFalseIfPausedOrManual(t *testing.T) {
	for name, tc := range map[string]struct {
		workload Workload
		spec     string
		want     bool
	}{
		"a deployment":        {Workload{"Deployment", "n", "x"}, `{}`, true},
		"a paused one":        {Workload{"Deployment", "n", "x"}, `{"paused":true}`, false},
		"a daemon set":        {Workload{"DaemonSet", "n", "x"}, `{"updateStrategy":{"type":"RollingUpdate"}}`, true},
		"one that waits":      {Workload{"StatefulSet", "n", "x"}, `{"updateStrategy":{"type":"OnDelete"}}`, false},
		"one that is deleted": {Workload{"Deployment", "n", "x"}, "gone", false},
		"one that is ending":  {Workload{"Deployment", "n", "x"}, "ending", false},
		"a job makes none":    {Workload{"Job", "n", "x"}, "", false},
		"a bare pod is alone": {Workload{"Pod", "n", "x"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []call
			if tc.spec != "" {
				calls = []call{getCall("/apis/apps/v1/namespaces/n/"+strings.ToLower(tc.workload.Kind)+"s/x", tc.workload.Kind, tc.spec)}
			}
			if got, err := newFakeAPI(t, calls...).newClient().RollsOnRestart(t.Context(), tc.workload); err != nil || got != tc.want {
				t.Errorf("%t: %v", got, err)
			}
		})
	}
}

// getCall returns the request for an object that exists with a spec, does not exist, or
// is terminating.
func getCall(path, kind, is string) call {
	meta := `"name":"x","namespace":"n"`
	switch is {
	case "gone":
		return call{request: "GET " + path, status: 404}
	case "ending":
		meta, is = meta+`,"deletionTimestamp":"2026-11-20T18:00:00Z"`, "{}"
	}
	return call{request: "GET " + path, answer: fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{%s},"spec":%s}`, kind, meta, is)}
}

// TestIsDeleted_IsTrueIfGoneOrTerminating: a workload or a bare pod is deleted if it does
// not exist or is terminating. For custom kinds the answer is false.
func TestIsDeleted_IsTrueIfGoneOrTerminating(t *testing.T) {
	const apps = "/apis/apps/v1/namespaces/n/"
	for _, tc := range []struct{ kind, at string }{
		{"Deployment", apps + "deployments/x"},
		{"StatefulSet", apps + "statefulsets/x"},
		{"DaemonSet", apps + "daemonsets/x"},
		{"ReplicaSet", apps + "replicasets/x"},
		{"Job", "/apis/batch/v1/namespaces/n/jobs/x"},
		{"Pod", "/api/v1/namespaces/n/pods/x"},
		{"Database", ""},
	} {
		for is, want := range map[string]bool{"gone": true, "ending": true, "{}": false} {
			t.Run(tc.kind+" "+is, func(t *testing.T) {
				var calls []call
				if tc.at != "" {
					calls = []call{getCall(tc.at, tc.kind, is)}
				}
				got, err := newFakeAPI(t, calls...).newClient().IsDeleted(t.Context(), Workload{tc.kind, "n", "x"})
				if err != nil || got != (want && tc.at != "") {
					t.Errorf("%t: %v", got, err)
				}
			})
		}
	}
}

// TestRestartWorkload_RestartsForTimeAndWaitsForOlderPods: the restart has the given
// time, and the wait ends when the older pods are gone.
func TestRestartWorkload_RestartsForTimeAndWaitsForOlderPods(t *testing.T) {
	w := Workload{"DaemonSet", "n", "agent"}
	f := newFakeAPI(t,
		call{
			request: "PATCH /apis/apps/v1/namespaces/n/daemonsets/agent?fieldManager=slipway",
			body:    `"kubectl.kubernetes.io/restartedAt":"2026-11-20T18:00:00Z"`,
			answer:  `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent"}}`,
		},
		call{request: "GET /api/v1/pods", answer: podListJSON(tokenPod("agent-a", "DaemonSet", "agent", "Running", -time.Minute, true))},
		call{request: "GET /api/v1/pods", answer: podListJSON(tokenPod("agent-b", "DaemonSet", "agent", "Running", time.Minute, true))},
	)
	c := f.newClient()
	if err := c.RestartWorkload(t.Context(), w, switched); err != nil {
		t.Fatal(err)
	}
	var said []string
	if err := c.WaitOldPodsGone(t.Context(), w, c.FindTokenHolders, switched, func(s string) { said = append(said, s) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"older pods have not terminated"}, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTokenSecrets_ReturnsAllSorted: tokens without an expiry are all returned, sorted.
func TestTokenSecrets_ReturnsAllSorted(t *testing.T) {
	secret := func(namespace, name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":%q,"name":%q},"data":{"token":%q,"ca.crt":"Y2E="}}`,
			namespace, name, base64.StdEncoding.EncodeToString([]byte("t-"+name)))
	}
	f := newFakeAPI(t, call{
		request: "GET /api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Fservice-account-token",
		answer:  `{"kind":"SecretList","apiVersion":"v1","items":[` + secret("z", "a") + "," + secret("b", "c") + "," + secret("b", "a") + `]}`,
	})
	got, err := f.newClient().TokenSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []TokenSecret{{"b", "a", "t-a", []byte("ca")}, {"b", "c", "t-c", []byte("ca")}, {"z", "a", "t-a", []byte("ca")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
