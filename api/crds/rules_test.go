package crds

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/crds/crdstest"
	"slipway.dev/slipway/internal/testutil/definition"
)

func TestDefinitions_AreValid(t *testing.T) {
	definition.LoadDefinition(t, Clusters)
	definition.LoadDefinition(t, Operations)
	definition.LoadDefinition(t, OperationLogs)
}

// TestClusters_FollowRules creates and changes Clusters.
func TestClusters_FollowRules(t *testing.T) {
	checkCases(t, Clusters, crdstest.ClusterCases(t))
}

// TestOperations_FollowRules creates and changes Operations.
func TestOperations_FollowRules(t *testing.T) {
	checkCases(t, Operations, crdstest.OperationCases(t, 1000))
}

// TestOperationLogs_FollowRules creates and changes OperationLogs.
func TestOperationLogs_FollowRules(t *testing.T) {
	checkCases(t, OperationLogs, crdstest.OperationLogCases(t))
}

// checkCases checks the cases of a definition, and requires that they break each of its rules.
func checkCases(t *testing.T, text []byte, cases []crdstest.Case) {
	t.Helper()
	d := definition.LoadDefinition(t, text)
	broken := map[string]bool{}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var older map[string]any
			if c.Old != nil {
				older = runtime.DeepCopyJSON(c.Old)
			}
			got := d.CheckObject(t, runtime.DeepCopyJSON(c.New), older)
			if c.Field == "" && len(got) > 0 || c.Field != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.Field+": ")) {
				t.Errorf("got %q, want an error about %q", got, c.Field)
			}
			for _, problem := range got {
				broken[withoutIndexes(problem)] = true
			}
		})
	}
	for _, rule := range rulesIn(t, text) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(broken)), func(p string) bool { return strings.HasPrefix(p, rule) }) {
			t.Errorf("no case breaks the rule %q", rule)
		}
	}
}

// withoutIndexes removes the indexes of lists from the path of a problem.
func withoutIndexes(problem string) string {
	path, detail, _ := strings.Cut(problem, ": ")
	var out strings.Builder
	for part := range strings.SplitSeq(path, "[") {
		if _, rest, found := strings.Cut(part, "]"); found {
			part = "[]" + rest
		}
		out.WriteString(part)
	}
	return out.String() + ": " + detail
}

// rulesIn returns the rules of a definition in CEL, "path: message".
func rulesIn(t *testing.T, text []byte) (out []string) {
	t.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root ruleSchema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	crd.Spec.Versions[0].Schema.Root.visit("", func(path, message string) {
		if path == "" {
			path = "<nil>"
		}
		out = append(out, path+": "+message)
	})
	if len(out) == 0 {
		t.Fatal("the definition has no rules")
	}
	return out
}

// A ruleSchema is the part of a schema with rules.
type ruleSchema struct {
	Rules []struct {
		Message   string `json:"message"`
		FieldPath string `json:"fieldPath"`
	} `json:"x-kubernetes-validations"`
	Properties map[string]ruleSchema `json:"properties"`
	Items      *ruleSchema           `json:"items"`
}

// visit calls f with each rule.
func (s *ruleSchema) visit(path string, f func(path, message string)) {
	for _, r := range s.Rules {
		f(strings.TrimPrefix(path+r.FieldPath, "."), r.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		child := s.Properties[name]
		child.visit(path+"."+name, f)
	}
	if s.Items != nil {
		s.Items.visit(path+"[]", f)
	}
}

// TestClusters_AllowThousandHosts changes an object with 1,000 hosts: its rules cost less than
// a request may.
func TestClusters_AllowThousandHosts(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	object := crdstest.ManyHosts(t)
	object["spec"].(map[string]any)["approval"] = "Manual"
	if got := d.CheckObject(t, object, crdstest.ManyHosts(t)); len(got) > 0 {
		t.Errorf("it is refused: %q", got)
	}
}
