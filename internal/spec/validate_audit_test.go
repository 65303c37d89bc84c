package spec

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

func TestAuditPolicy_RefusesInvalidPolicies(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	ours := readPage(t, "../module/kubeadm/templates/audit-policy.yaml")
	for _, tc := range []struct{ name, policy, want string }{
		{"ours", ours, ""},
		{"one rule", head + "rules: [{level: Metadata}]", ""},
		{"not YAML", "rules: [", "yaml: line 1: did not find expected node content"},
		{"something else", "apiVersion: v1\nkind: Pod\n", `the file contains a "Pod" of "v1"`},
		{"no rules", head, "the policy has no rules"},
		{"empty", "", "the file is empty"},
		{
			"an unknown field", head + "rules: [{level: None, urls: [/]}]",
			`error unmarshaling JSON: while decoding JSON: json: unknown field "urls"`,
		},
		{
			"an unknown stage", head + "omitStages: [Nope]\nrules: [{level: None}]",
			`omitStages[0] is "Nope": use RequestReceived, ResponseStarted, ResponseComplete or Panic`,
		},
		{
			"two things", head + "rules: [{level: None, nonResourceURLs: [/x], resources: [{group: ''}]}]",
			"rules[0] mixes resources and non-resource URLs: split the rule in two",
		},
		{
			"an unknown level", head + "rules: [{level: None}, {level: All}]",
			`rules[1].level is "All": use None, Metadata, Request or RequestResponse`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(tc.policy), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &v1alpha1.Cluster{}
			c.Spec.Kubernetes.Audit = &v1alpha1.Audit{PolicyFile: "policy.yaml"}
			var got, want []string
			for _, d := range CheckFiles(c, Paths{Dir: dir}) {
				got = append(got, d.ID+" "+d.Path+": "+d.Message)
			}
			if tc.want != "" {
				want = []string{"invalid-value spec.kubernetes.audit.policyFile: " + filepath.Join(dir, "policy.yaml") + ": " + tc.want}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
