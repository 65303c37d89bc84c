package spec

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestFindSharedAddresses_DoesNotNeedDefaults compares the result before and after SetDefaults.
func TestFindSharedAddresses_DoesNotNeedDefaults(t *testing.T) {
	text, err := os.ReadFile("testdata/shared-addresses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests []struct {
		Name   string          `json:"name"`
		Reason string          `json:"reason"`
		SSH    v1alpha1.SSH    `json:"ssh"`
		Hosts  []v1alpha1.Host `json:"hosts"`
		Want   []string        `json:"want"`
	}
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		t.Run(tc.Name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.SSH, c.Spec.Hosts = tc.SSH, tc.Hosts
			for _, state := range []string{"without defaults", "with defaults"} {
				var got []string
				for _, s := range FindSharedAddresses(c) {
					got = append(got, fmt.Sprintf("spec.hosts[%d].%s", s.Host, s.Field))
				}
				if diff := cmp.Diff(tc.Want, got); diff != "" {
					t.Errorf("%s, because %s (-want +got):\n%s", state, tc.Reason, diff)
				}
				SetDefaults(c, DefaultOptions{})
			}
		})
	}
}
