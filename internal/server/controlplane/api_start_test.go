package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/testutil/golden"
)

// TestStart_ServesNeededKinds compares the served kinds with a golden: there are no pods and no
// nodes.
func TestStart_ServesNeededKinds(t *testing.T) {
	client := server.Client(t)
	waitUntil(t, "/readyz is ok", func(ctx context.Context) (bool, error) {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return string(body) == "ok", err
	})
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			got = append(got, list.GroupVersion+" "+r.Name+" "+strings.Join(slices.Sorted(slices.Values(r.Verbs)), ","))
		}
	}
	slices.Sort(got)
	golden.Check(t, "testdata/kinds.txt", strings.Join(got, "\n")+"\n")
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStart_CachesServedResourcesOnly looks for the cache of a resource that is not served. The
// library would not close it, and etcd would wait for its watch at the stop of the server.
func TestStart_CachesServedResourcesOnly(t *testing.T) {
	client := server.Client(t)
	cached := func(resource string) bool {
		_, err := readMetric(t.Context(), client, `apiserver_watch_cache_initializations_total\{group="",resource="`+resource+`"\}`)
		return err == nil
	}
	if !cached("configmaps") || cached("resourcequotas") {
		t.Errorf("ConfigMaps are cached: %t, resource quotas: %t", cached("configmaps"), cached("resourcequotas"))
	}
}
