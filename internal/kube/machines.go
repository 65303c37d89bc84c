package kube

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Machines is a client for machines that may not be nodes again.
type Machines struct{ *connection }

// A force-removed machine may come back, and its kubelet still has valid credentials,
// because kubelet certificates cannot be revoked. This policy rejects it by its machine id,
// so that another machine can use its name.
const (
	ForgottenPolicy     = "slipway-forgotten-machines"
	forgottenAnnotation = "slipway.dev/machine-ids"
	admissionAPI        = "admissionregistration.k8s.io/v1"
)

var policies = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}

// ListForgotten returns the ids of the machines that the policy rejects, sorted.
func (c Machines) ListForgotten(ctx context.Context) ([]string, error) {
	u, err := c.dynamic.Resource(policies).Get(ctx, ForgottenPolicy, metav1.GetOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w", ForgottenPolicy, c.describeError(err))
	}
	ids := strings.Split(u.GetAnnotations()[forgottenAnnotation], ",")
	slices.Sort(ids)
	return slices.DeleteFunc(ids, func(id string) bool { return !IsMachineID(id) }), nil
}

// machineIDs matches possible machine ids: 32 hexadecimal digits, or a UUID from the
// firmware. A kubelet may report any text, and the ids are stored in one text.
var machineIDs = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// IsMachineID reports whether a text can be a machine id.
func IsMachineID(id string) bool { return machineIDs.MatchString(id) }

// Forget adds a machine to the policy, so that it cannot be a node again. It refuses a text
// that is not a machine id.
func (c Machines) Forget(ctx context.Context, machineID string) error {
	if machineID != "" && !IsMachineID(machineID) {
		return fmt.Errorf("rejecting a removed machine: %.80q is not a machine id", machineID)
	}
	ids, err := c.ListForgotten(ctx)
	if err != nil || machineID == "" || slices.Contains(ids, machineID) {
		return err
	}
	ids = append(ids, machineID)
	slices.Sort(ids)
	return Objects(c).Apply(ctx, forgottenObjects(ids))
}

// Readmit removes a machine from the policy, so that it can be a node again.
func (c Machines) Readmit(ctx context.Context, machineID string) error {
	ids, err := c.ListForgotten(ctx)
	if err != nil || !slices.Contains(ids, machineID) {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == machineID })
	if len(ids) == 0 {
		return Objects(c).Delete(ctx, forgottenObjects(nil))
	}
	return Objects(c).Apply(ctx, forgottenObjects(ids))
}

func forgottenObjects(ids []string) []*unstructured.Unstructured {
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = fmt.Sprintf("%q", id)
	}
	return []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": admissionAPI, "kind": "ValidatingAdmissionPolicy",
			"metadata": map[string]any{"name": ForgottenPolicy, "annotations": map[string]any{forgottenAnnotation: strings.Join(ids, ",")}},
			"spec": map[string]any{
				"failurePolicy": "Fail",
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
					"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"},
					"resources": []any{"nodes", "nodes/status"},
				}}},
				"validations": []any{map[string]any{
					"expression": "!has(object.status) || !has(object.status.nodeInfo) || !(object.status.nodeInfo.machineID in [" +
						strings.Join(quoted, ", ") + "])",
					"message": "this machine was force-removed from the cluster; reset it first: slipway delete node --host USER@ADDRESS",
				}},
			},
		}},
		{Object: map[string]any{
			"apiVersion": admissionAPI, "kind": "ValidatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": ForgottenPolicy},
			"spec":     map[string]any{"policyName": ForgottenPolicy, "validationActions": []any{"Deny"}},
		}},
	}
}
