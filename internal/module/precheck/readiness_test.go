package precheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/release"
)

// A readyRow is the state of a cluster, and the findings.
type readyRow struct {
	name, reason string
	seen         Readiness
	ignore       []string
	want         []string
	says         string
}

func readyRows() []readyRow {
	ill := []Trouble{{Host: "cp1", Message: "it is broken", Hint: "repair it", Blocks: true}}
	told := []Trouble{{Host: "cp1", Message: "it will break", Hint: "repair it"}}
	return []readyRow{
		{"well", "nothing prevents the upgrade", Readiness{}, nil, nil, ""},
		{
			"unknown", "a newer patch needs no newer Slipway",
			Readiness{Unknown: []release.Release{{Kubernetes: "v1.37.9"}}},
			nil,
			[]string{"warning release-unknown "},
			"v1.37.9; Slipway treats it like the other patch",
		},
		{
			"unknown minor", "a bundle has it, but it is untested",
			Readiness{Unknown: []release.Release{{Kubernetes: "v1.38.0", Beyond: true}}},
			nil,
			[]string{"warning release-unknown "},
			"this version is untested",
		},
		{
			"silent", "the cluster cannot be checked",
			Readiness{Silent: "no route to host"},
			[]string{"api-not-asked"},
			[]string{"error api-not-asked "},
			"no route to host",
		},
		{"removed", "clients of the API would stop working", Readiness{Removed: []string{"a", "b"}}, nil, []string{"error api-removed "}, "a, b"},
		{
			"removed and ignored", "no client uses it now",
			Readiness{Removed: []string{"a"}},
			[]string{"api-removed"},
			[]string{"warning api-removed "},
			"ignored with --ignore-check",
		},
		{"deprecated", "a later version removes it", Readiness{Deprecated: []string{"c"}}, nil, []string{"warning api-deprecated "}, "c"},
		{"budget", "a drain would wait", Readiness{Budgets: []string{"ns/web"}}, nil, []string{"error disruption-budget "}, "ns/web"},
		{"webhook", "requests fail", Readiness{Webhooks: []string{"guard"}}, nil, []string{"error webhook-unanswered "}, "guard"},
		{
			"webhook that failed before", "it works now",
			Readiness{Uncalled: []string{"sentinel"}},
			nil,
			[]string{"warning webhook-unanswered "},
			"sentinel",
		},
		{
			"bundles", "the upgrade would stop halfway",
			Readiness{Missing: []string{"v1.37.1"}},
			nil,
			[]string{"error bundle-missing "},
			"slipway bundle build --kubernetes v1.37.1",
		},
		{
			"node", "harm from the upgrade could not be detected",
			Readiness{Unready: ill},
			[]string{"upgrade-node-unready"},
			[]string{"error upgrade-node-unready cp1"},
			"it is broken",
		},
		{
			"crowded", "some pods wait, but the upgrade continues",
			Readiness{Crowded: []string{"w1: much"}},
			nil,
			[]string{"warning upgrade-capacity "},
			"w1: much",
		},
		{
			"skewed", "its kubelet would be too old for API servers",
			Readiness{Skewed: ill},
			nil,
			[]string{"error kubelet-skew cp1"},
			"it is broken",
		},
		{"etcd", "the upgrade stops another member", Readiness{Etcd: ill}, nil, []string{"error etcd-unready cp1"}, ""},
		{"etcd, nearly full", "etcd still works", Readiness{Etcd: told}, nil, []string{"warning etcd-unready cp1"}, ""},
		{
			"certificates", "they expire during the upgrade",
			Readiness{Certificates: ill},
			[]string{"certificate-expires"},
			[]string{"warning certificate-expires cp1"},
			"ignored with --ignore-check",
		},
	}
}

func TestCheckReadiness_PerRow(t *testing.T) {
	for _, tt := range readyRows() {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.To = "v1.37.1"
			found := CheckReadiness(tt.seen, Options{Ignore: tt.ignore})
			var got []string
			for _, d := range found {
				got = append(got, string(d.Severity)+" "+d.ID+" "+d.Host)
				if d.Message == "" || d.Hint == "" {
					t.Errorf("%s has no message or no remedy: %+v", d.ID, d)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || !strings.Contains(found.Error(), tt.says) {
				t.Errorf("%s: -want +got\n%s\n%v, want it to say %q", tt.reason, diff, found, tt.says)
			}
		})
	}
}
