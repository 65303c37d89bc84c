package controlplane

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// TestFindSharedAddresses_AgreesWithCommandLine has the cases of the command line.
func TestFindSharedAddresses_AgreesWithCommandLine(t *testing.T) {
	text, err := os.ReadFile("../../spec/testdata/shared-addresses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests []map[string]any
	if err := utilyaml.Unmarshal(text, &tests); err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		name, _, _ := unstructured.NestedString(tc, "name")
		reason, _, _ := unstructured.NestedString(tc, "reason")
		want, _, err := unstructured.NestedStringSlice(tc, "want")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			problems, err := findSharedAddresses(map[string]any{"spec": tc})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Field)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", reason, diff)
			}
		})
	}
}
