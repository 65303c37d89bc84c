package policies

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/operation"
)

// readPolicy returns a policy and its binding.
func readPolicy(t *testing.T, text []byte) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for _, into := range []any{&policy, &binding} {
		document, err := documents.Read()
		if err = errors.Join(err, yaml.UnmarshalStrict(document, into)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := documents.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("there are more documents: %v", err)
	}
	if binding.Spec.PolicyName != policy.Name || !slices.Equal(binding.Spec.ValidationActions,
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
		t.Errorf("the binding of %s does not enforce it: %+v", policy.Name, binding.Spec)
	}
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("a failure of %s does not refuse a request", policy.Name)
	}
	return &policy
}

// compile compiles a policy as an API server does.
func compile(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	withAuthorizer, plain := cel.OptionalVariableDeclarations{HasAuthorizer: true}, cel.OptionalVariableDeclarations{}
	var variables []cel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, withAuthorizer, environment.NewExpressions)
	var conditions, messages []cel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		condition := &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if result := compiler.CompileCELExpression(condition, withAuthorizer, environment.NewExpressions); result.Error != nil {
			t.Errorf("%s: %v", v.Expression, result.Error)
		}
		conditions = append(conditions, condition)
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
			if result := compiler.CompileCELExpression(message, plain, environment.NewExpressions); result.Error != nil {
				t.Errorf("%s: %v", v.MessageExpression, result.Error)
			}
		}
		messages = append(messages, message)
	}
	return validating.NewValidator(compiler.CompileCondition(conditions, withAuthorizer, environment.NewExpressions), nil,
		compiler.CompileCondition(nil, withAuthorizer, environment.NewExpressions),
		compiler.CompileCondition(messages, plain, environment.NewExpressions), policy.Spec.FailurePolicy, nil)
}

// A request has a change of an object, and the rights of its user: "verb resource/name".
type request struct {
	verb     admission.Operation
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	old      *unstructured.Unstructured
	options  runtime.Object
	rights   []string
}

// ask returns the refusals of a request, and the rights that the policy has asked for.
func (r request) ask(t *testing.T, v validating.Validator) (refusals, asked []string) {
	t.Helper()
	present := r.object
	if present == nil {
		present = r.old
	}
	attributes := &admission.VersionedAttributes{VersionedKind: present.GroupVersionKind()}
	var object, old runtime.Object
	if r.object != nil {
		object = r.object
		attributes.VersionedObject.Set(object)
	}
	if r.old != nil {
		old = r.old
		attributes.VersionedOldObject.Set(old)
	}
	attributes.Attributes = admission.NewAttributesRecord(object, old, present.GroupVersionKind(), present.GetNamespace(), present.GetName(),
		r.resource, "", r.verb, r.options, false, &user.DefaultInfo{Name: "jane"})
	rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		right := strings.TrimSuffix(a.GetVerb()+" "+a.GetResource()+"/"+a.GetName()+"/"+a.GetSubresource(), "/")
		if a.GetNamespace() != "team" || a.GetUser().GetName() != "jane" || a.GetAPIGroup() != r.resource.Group {
			right = "wrong request: " + right
		}
		asked = append(asked, right)
		if slices.Contains(r.rights, right) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	result := v.Validate(t.Context(), r.resource, attributes, nil, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget, rights)
	for _, d := range result.Decisions {
		switch {
		case d.Evaluation == validating.EvalError:
			t.Errorf("the policy fails: %s", d.Message)
		case d.Action == validating.ActionDeny:
			if d.Reason != metav1.StatusReasonForbidden {
				t.Errorf("%q has the reason %s", d.Message, d.Reason)
			}
			refusals = append(refusals, d.Message)
		}
	}
	return refusals, asked
}

var operations = schema.GroupVersionResource{Group: "slipway.dev", Version: "v1alpha1", Resource: "operations"}

// newOperation returns an operation on cluster prod, with more fields of its specification.
func newOperation(t *testing.T, fields string) *unstructured.Unstructured {
	t.Helper()
	var object map[string]any
	err := yaml.Unmarshal([]byte("{apiVersion: slipway.dev/v1alpha1, kind: Operation, metadata: {name: x, namespace: team}, "+
		"spec: {clusterRef: {name: prod}, "+fields+"}}"), &object)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}

// TestOperations_NeedRightOfKind compares the policy with the table of kinds.
func TestOperations_NeedRightOfKind(t *testing.T) {
	validator := compile(t, readPolicy(t, Operations))
	for _, kind := range operation.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			right := kind.ClusterRight() + " clusters/prod"
			r := request{verb: admission.Create, resource: operations, object: newOperation(t, "kind: "+string(kind))}
			refusals, asked := r.ask(t, validator)
			if len(refusals) != 1 || !strings.Contains(refusals[0], kind.ClusterRight()) || !slices.Equal(asked, []string{right}) {
				t.Errorf("without rights: refusals %q, asked for %q, want %q", refusals, asked, right)
			}
			r.rights = []string{right}
			if refusals, _ := r.ask(t, validator); len(refusals) > 0 {
				t.Errorf("with the right %q: %q", right, refusals)
			}
		})
	}
	unknown := request{
		verb: admission.Create, resource: operations, object: newOperation(t, "kind: reinstall"),
		rights: []string{"update clusters/prod", " clusters/prod"},
	}
	if refusals, _ := unknown.ask(t, validator); len(refusals) != 1 {
		t.Errorf("an unknown kind: %q", refusals)
	}
	policy := readPolicy(t, Operations)
	if n := strings.Count(policy.Spec.Variables[0].Expression, `": "`); n != len(operation.Kinds()) {
		t.Errorf("the policy has %d kinds, and the table %d", n, len(operation.Kinds()))
	}
}

func TestOperations_NeedRightsToChange(t *testing.T) {
	validator := compile(t, readPolicy(t, Operations))
	const update, approve, cancel = "update clusters/prod", "approve clusters/prod", "cancel operations/x"
	for _, tc := range []struct {
		name, reason string
		old, new     string // "" for no older object
		want         []string
	}{
		{"created", "the kind needs it", "", "kind: apply", []string{update}},
		{"created with an approval", "both are needed", "", "kind: apply, approvedPlan: a", []string{update, approve}},
		{"created as cancelled", "both are needed", "", "kind: apply, cancelled: true", []string{update, cancel}},
		{"created with a retry", "one right for both", "", "kind: apply, retry: 1", []string{update}},
		{"not changed", "metadata can change", "kind: apply", "kind: apply", nil},
		{"approved", "a user approves", "kind: apply", "kind: apply, approvedPlan: a", []string{approve}},
		{"approved from empty", "it was not set", `kind: apply, approvedPlan: ""`, "kind: apply, approvedPlan: a", []string{approve}},
		{"approved before", "others can change later", "kind: apply, approvedPlan: a", "kind: apply, approvedPlan: a", nil},
		{"not approved", "an empty value is no approval", "kind: apply", `kind: apply, approvedPlan: ""`, nil},
		{"cancelled", "a user cancels", "kind: apply", "kind: apply, cancelled: true", []string{cancel}},
		{"cancelled from false", "a user cancels", "kind: apply, cancelled: false", "kind: apply, cancelled: true", []string{cancel}},
		{"cancelled before", "others can change later", "kind: apply, cancelled: true", "kind: apply, cancelled: true", nil},
		{"retried", "it starts again", "kind: apply", "kind: apply, retry: 1", []string{update}},
		{"retried again", "it starts again", "kind: delete, retry: 1", "kind: delete, retry: 2", []string{"delete clusters/prod"}},
		{"retried before", "others can change later", "kind: apply, retry: 1", "kind: apply, retry: 1", nil},
		{"all", "each is needed", "kind: apply", "kind: apply, retry: 1, cancelled: true, approvedPlan: a", []string{update, approve, cancel}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{verb: admission.Create, resource: operations, object: newOperation(t, tc.new), rights: tc.want}
			if tc.old != "" {
				r.verb, r.old = admission.Update, newOperation(t, tc.old)
			}
			refusals, asked := r.ask(t, validator)
			if len(refusals) > 0 {
				t.Errorf("with its rights: %q: %s", refusals, tc.reason)
			}
			if d := cmp.Diff(tc.want, asked); d != "" {
				t.Errorf("%s: asked for (-want +got):\n%s", tc.reason, d)
			}
			r.rights = nil
			if refusals, _ := r.ask(t, validator); len(refusals) != len(tc.want) {
				t.Errorf("without rights: %q: %s", refusals, tc.reason)
			}
		})
	}
}

// TestOperations_ReserveMarks sets, changes and removes the annotations with which Slipway marks the
// operations that it creates.
func TestOperations_ReserveMarks(t *testing.T) {
	validator := compile(t, readPolicy(t, Operations))
	const update, status = "update clusters/prod", "update operations/x/status"
	const mark, created = "slipway.dev/request", "slipway.dev/created"
	for _, tc := range []struct {
		name, reason string
		old, new     map[string]string
		want         []string // besides the right of a creation
	}{
		{"none", "a user requests an operation", nil, nil, nil},
		{"others", "they decide nothing", map[string]string{"a": "b"}, map[string]string{"a": "c"}, nil},
		{"request", "its time would count", nil, map[string]string{mark: "0a"}, []string{status}},
		{"time", "it decides the order", nil, map[string]string{created: "2026-11-29T00:00:00Z"}, []string{status}},
		{"both", "one right for both", nil, map[string]string{mark: "0a", created: "2026-11-29T00:00:00Z"}, []string{status}},
		{"changed", "it decides the order", map[string]string{mark: "0a"}, map[string]string{mark: "0b"}, []string{status}},
		{"removed", "the operation would move", map[string]string{mark: "0a"}, map[string]string{"a": "b"}, []string{status}},
		{"all removed", "the operation would move", map[string]string{mark: "0a"}, nil, []string{status}},
		{"not changed", "others can change", map[string]string{mark: "0a"}, map[string]string{mark: "0a", "a": "b"}, nil},
		{"scheduled", "it would wait for a window", nil, map[string]string{operation.AnnotationScheduled: "x"}, []string{status}},
		{"repair", "it would wait for a window", nil, map[string]string{"slipway.dev/repair": "x"}, []string{status}},
		{"resumed", "the request would have its result", nil, map[string]string{"slipway.dev/resumed-by": "x"}, []string{status}},
		{"exchanged", "each has one meaning", map[string]string{mark: "0a"}, map[string]string{created: "0a"}, []string{status}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{verb: admission.Create, resource: operations, object: newOperation(t, "kind: apply")}
			r.object.SetAnnotations(tc.new)
			if tc.old != nil {
				r.verb, r.old = admission.Update, newOperation(t, "kind: apply")
				r.old.SetAnnotations(tc.old)
			}
			want := tc.want
			if r.old == nil {
				want = append([]string{update}, want...)
			}
			r.rights = want
			refusals, asked := r.ask(t, validator)
			if len(refusals) > 0 {
				t.Errorf("with its rights: %q: %s", refusals, tc.reason)
			}
			if d := cmp.Diff(want, asked); d != "" {
				t.Errorf("%s: asked for (-want +got):\n%s", tc.reason, d)
			}
			r.rights = nil
			if refusals, _ := r.ask(t, validator); len(refusals) != len(want) {
				t.Errorf("without rights: %q: %s", refusals, tc.reason)
			}
		})
	}
}

// TestSecrets_AreNotReturned deletes Secrets. The response to some deletions has the Secret.
func TestSecrets_AreNotReturned(t *testing.T) {
	validator := compile(t, readPolicy(t, Secrets))
	orphan, background, foreground := metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground
	yes := true
	for _, tc := range []struct {
		name       string
		options    metav1.DeleteOptions
		finalizers []any
		reads      bool
	}{
		{"as usual", metav1.DeleteOptions{}, nil, false},
		{"in the background", metav1.DeleteOptions{PropagationPolicy: &background}, nil, false},
		{"in the foreground", metav1.DeleteOptions{PropagationPolicy: &foreground}, nil, true},
		{"without dependents", metav1.DeleteOptions{PropagationPolicy: &orphan}, nil, true},
		{"without dependents, old field", metav1.DeleteOptions{OrphanDependents: &yes}, nil, true}, //nolint:staticcheck // still served
		{"with finalizers", metav1.DeleteOptions{}, []any{"example.com/a"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			metadata := map[string]any{"name": "s", "namespace": "team"}
			if tc.finalizers != nil {
				metadata["finalizers"] = tc.finalizers
			}
			r := request{
				verb: admission.Delete, resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, options: &tc.options,
				old: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata}},
			}
			if refusals, _ := r.ask(t, validator); (len(refusals) > 0) != tc.reads {
				t.Errorf("refusals %q", refusals)
			}
			r.rights = []string{"get secrets/s"}
			if refusals, _ := r.ask(t, validator); len(refusals) > 0 {
				t.Errorf("with the right to read: %q", refusals)
			}
		})
	}
}

// TestClusters_NeedRightToApprove changes Clusters so that a later plan needs no approval.
func TestClusters_NeedRightToApprove(t *testing.T) {
	validator := compile(t, readPolicy(t, Clusters))
	const removal = "slipway.dev/allow-removal"
	object := func(text string) *unstructured.Unstructured {
		var out map[string]any
		if err := yaml.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		out["apiVersion"], out["kind"] = v1alpha1.APIVersion, "Cluster"
		return &unstructured.Unstructured{Object: out}
	}
	const plain = "metadata: {name: prod, namespace: team}"
	const removes = "metadata: {name: prod, namespace: team, annotations: {" + removal + ": w1}}"
	const manual = "\nspec: {approval: Manual}"
	for _, tc := range []struct {
		name, reason string
		old, new     string // "" for no older object
		approves     bool
	}{
		{"created", "it has nothing to approve", "", plain + "\nspec: {paused: true}", false},
		{"created, automatic", "its creator decides", "", plain + "\nspec: {approval: Automatic}", false},
		{"created with a removal", "a later change would need no approval", "", removes + "\nspec: {}", true},
		{"changed", "others can change the cluster", plain + "\nspec: {}", plain + "\nspec: {paused: true}", false},
		{"removal", "it is an approval", plain + "\nspec: {}", removes + "\nspec: {}", true},
		{"another removal", "it is another approval", strings.Replace(removes, "w1", "w2", 1) + "\nspec: {}", removes + "\nspec: {}", true},
		{"same removal", "it was approved", removes + "\nspec: {}", removes + "\nspec: {paused: true}", false},
		{"removal taken back", "it is less than before", removes + "\nspec: {}", plain + "\nspec: {}", false},
		{"manual", "it asks for approvals", plain + "\nspec: {}", plain + manual, false},
		{"still manual", "it asks for approvals", plain + manual, plain + "\nspec: {approval: Manual, paused: true}", false},
		{"automatic", "no plan would be approved", plain + manual, plain + "\nspec: {approval: Automatic}", true},
		{"not manual", "no plan would be approved", plain + manual, plain + "\nspec: {}", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{
				verb: admission.Create, resource: operations.GroupVersion().WithResource("clusters"), object: object(tc.new),
				rights: []string{"approve clusters/prod"},
			}
			if tc.old != "" {
				r.verb, r.old = admission.Update, object(tc.old)
			}
			refusals, asked := r.ask(t, validator)
			if len(refusals) > 0 || (len(asked) > 0) != tc.approves {
				t.Errorf("%s: with the right: refusals %q, asked for %q", tc.reason, refusals, asked)
			}
			r.rights = nil
			refusals, _ = r.ask(t, validator)
			if (len(refusals) > 0) != tc.approves || tc.approves && !strings.Contains(refusals[0], "the verb approve on cluster prod") {
				t.Errorf("%s: without the right: %q", tc.reason, refusals)
			}
		})
	}
}

// TestClusters_AreProtected deletes Clusters with and without the annotation.
func TestClusters_AreProtected(t *testing.T) {
	validator := compile(t, readPolicy(t, Clusters))
	const other = "example.com/a"
	for _, tc := range []struct {
		name, reason string
		annotations  map[string]any // nil for none
		protected    bool
	}{
		{"none", "a user deletes it", nil, false},
		{"others", "they decide nothing", map[string]any{other: "true"}, false},
		{"set", "it is protected", map[string]any{other: "a", v1alpha1.AnnotationProtection: "true"}, true},
		{"another value", "a typing error deletes no cluster", map[string]any{v1alpha1.AnnotationProtection: "yes"}, true},
		{"no value", "the annotation is there", map[string]any{v1alpha1.AnnotationProtection: ""}, true},
		{"false", "the user has allowed it", map[string]any{v1alpha1.AnnotationProtection: "false"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			metadata := map[string]any{"name": "prod", "namespace": "team"}
			if tc.annotations != nil {
				metadata["annotations"] = tc.annotations
			}
			r := request{
				verb: admission.Delete, resource: operations.GroupVersion().WithResource("clusters"), options: &metav1.DeleteOptions{},
				old: &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.APIVersion, "kind": "Cluster", "metadata": metadata,
				}},
			}
			refusals, _ := r.ask(t, validator)
			if (len(refusals) > 0) != tc.protected {
				t.Errorf("%s: refusals %q", tc.reason, refusals)
			}
			const remedy = "kubectl annotate cluster prod --namespace team " + v1alpha1.AnnotationProtection + "-"
			if tc.protected && !strings.Contains(refusals[0], remedy) {
				t.Errorf("%q does not tell how to allow the deletion", refusals[0])
			}
		})
	}
}
