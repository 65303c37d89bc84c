package spec

import (
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
)

const (
	pathAudit       = "spec.kubernetes.audit"
	pathAuditPolicy = pathAudit + ".policyFile"
	auditAPI        = "audit.k8s.io/v1"
)

// audit refuses numbers that are none.
func (v *validator) audit(a *v1alpha1.Audit) {
	if a == nil {
		return
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"maxAge", a.MaxAge}, {"maxBackups", a.MaxBackups}, {"maxSize", a.MaxSize}} {
		if n.value < 0 {
			v.refuse(idInvalidValue, pathAudit+"."+n.name, strconv.Itoa(n.value)+" is less than nothing", "leave it out for the default")
		}
	}
}

// auditPolicy looks at the user's policy: with a mistake in it no API server
// would start.
func (v *validator) auditPolicy(p Paths) {
	a := v.c.Spec.Kubernetes.Audit
	if a == nil || a.PolicyFile == "" {
		return
	}
	data, name := v.content(pathAuditPolicy, a.PolicyFile, p, false), p.Resolve(a.PolicyFile)
	if data == nil {
		return
	}
	if problem := policyProblem(data); problem != "" {
		v.refuse(idInvalidValue, pathAuditPolicy, name+": "+problem, "write a Policy of "+auditAPI+", or leave the field out for Slipway's")
	}
}

func policyProblem(data []byte) string {
	var policy struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Rules      []struct {
			Level string `json:"level"`
		} `json:"rules"`
	}
	if err := yaml.Unmarshal(data, &policy); err != nil {
		return strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	}
	switch {
	case policy.APIVersion != auditAPI || policy.Kind != "Policy":
		return "this is a " + strconv.Quote(policy.Kind) + " of " + strconv.Quote(policy.APIVersion)
	case len(policy.Rules) == 0:
		return "it has no rules"
	}
	levels := []string{"None", "Metadata", "Request", "RequestResponse"}
	for i, r := range policy.Rules {
		if !slices.Contains(levels, r.Level) {
			return indexed("rules", i) + ".level is " + strconv.Quote(r.Level) + ": use " + orList(levels)
		}
	}
	return ""
}
