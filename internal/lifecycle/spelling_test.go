package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
)

// TestAddresses_MatchInDifferentSpellings checks that different spellings of an address in the file and in saved
// state are equal, for plans and for selectors.
func TestAddresses_MatchInDifferentSpellings(t *testing.T) {
	t.Parallel()
	other := func(address string) string { return "::ffff:" + address }
	endpoint := onKeepalived
	w := newWorld(t, threeAndTwo...)
	w.Endpoint = &endpoint
	w.reachable()
	w.create(event.Succeeded)
	respelt := w.Manifest()
	respelt.Spec.ControlPlaneEndpoint.Address = other(virtualAddress)
	for i := range respelt.Spec.Hosts {
		h := &respelt.Spec.Hosts[i]
		h.Address, h.InternalAddress = other(h.Address), other(h.Address)
	}
	nothing := func(reason string, c *v1alpha1.Cluster) {
		t.Helper()
		if p := w.prepared(w.service().Prepare(t.Context(), applying(c), nil)); !p.Plan().IsEmpty() {
			t.Errorf("%s: the plan has %v", reason, p.Plan().Steps)
		}
	}
	nothing("a file in another spelling", respelt)

	record := filepath.Join(w.home, "clusters", "prod", "cluster.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(text), `"192.0.2.`, `"`+other("192.0.2."))
	if err := os.WriteFile(record, []byte(changed), 0o600); err != nil || changed == string(text) {
		t.Fatal("the saved cluster has no addresses", err)
	}
	nothing("a saved cluster in another spelling", w.Manifest())
	nothing("a saved cluster and a file in another spelling", respelt)

	w.do(DeleteNodesRequest{Name: "prod", Nodes: []string{other(w.Hosts["w1"].Address)}}, event.Succeeded)
	w.wantHosts("cp1", "cp2", "cp3", "w2")
}
