package spec

import (
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

const (
	pathAudit       = "spec.kubernetes.audit"
	pathAuditPolicy = pathAudit + ".policyFile"
	auditAPI        = "audit.k8s.io/v1"
)

// checkAudit rejects invalid numbers.
func (v *validator) checkAudit(a *v1alpha1.Audit) {
	if a == nil {
		return
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{{"maxAge", a.MaxAge, 36500}, {"maxBackups", a.MaxBackups, 1e6}, {"maxSize", a.MaxSize, 1 << 20}} { // days, files, megabytes
		path := pathAudit + "." + n.name
		switch {
		case n.value < 0:
			v.refuse(idInvalidValue, path, strconv.Itoa(n.value)+" is negative", "leave the field out for the default")
		case n.value > n.most:
			v.refuse(idInvalidValue, path, strconv.Itoa(n.value)+" is more than a host can keep",
				"write "+strconv.Itoa(n.most)+" at most, or leave the field out for the default")
		}
	}
}

// checkAuditPolicy checks the user's policy: with an error in it, no API server would start.
func (v fileValidator) checkAuditPolicy(p Paths) {
	a := v.c.Spec.Kubernetes.Audit
	if a == nil || a.PolicyFile == "" {
		return
	}
	data, name := v.readContent(pathAuditPolicy, a.PolicyFile, p, false), p.Resolve(a.PolicyFile)
	if data == nil {
		return
	}
	if problem := policyProblem(data); problem != "" {
		v.refuse(idInvalidValue, pathAuditPolicy, name+": "+problem,
			"write a Policy of version "+auditAPI+", or leave the field out to use Slipway's policy")
	}
}

// policyFile has the fields of audit.k8s.io/v1, Policy.
type policyFile struct {
	APIVersion        string         `json:"apiVersion"`
	Kind              string         `json:"kind"`
	Metadata          map[string]any `json:"metadata"`
	OmitStages        []string       `json:"omitStages"`
	OmitManagedFields bool           `json:"omitManagedFields"`
	Rules             []policyRule   `json:"rules"`
}

type policyRule struct {
	Level      string   `json:"level"`
	Users      []string `json:"users"`
	UserGroups []string `json:"userGroups"`
	Verbs      []string `json:"verbs"`
	Namespaces []string `json:"namespaces"`
	Resources  []struct {
		Group         string   `json:"group"`
		Resources     []string `json:"resources"`
		ResourceNames []string `json:"resourceNames"`
	} `json:"resources"`
	NonResourceURLs   []string `json:"nonResourceURLs"`
	OmitStages        []string `json:"omitStages"`
	OmitManagedFields *bool    `json:"omitManagedFields"`
}

func policyProblem(data []byte) string {
	var policy policyFile
	if err := yaml.UnmarshalStrict(data, &policy); err != nil {
		return strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	}
	switch {
	case len(strings.TrimSpace(string(data))) == 0:
		return "the file is empty"
	case policy.APIVersion != auditAPI || policy.Kind != "Policy":
		return "the file contains a " + strconv.Quote(policy.Kind) + " of " + strconv.Quote(policy.APIVersion)
	case len(policy.Rules) == 0:
		return "the policy has no rules"
	}
	if problem := stageProblem("omitStages", policy.OmitStages); problem != "" {
		return problem
	}
	levels := []string{"None", "Metadata", "Request", "RequestResponse"}
	for i, r := range policy.Rules {
		at := yamlfile.IndexPath("rules", i)
		if !slices.Contains(levels, r.Level) {
			return at + ".level is " + strconv.Quote(r.Level) + ": use " + orList(levels)
		}
		if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
			return at + " mixes resources and non-resource URLs: split the rule in two"
		}
		if problem := stageProblem(at+".omitStages", r.OmitStages); problem != "" {
			return problem
		}
	}
	return ""
}

func stageProblem(at string, stages []string) string {
	known := []string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
	for i, s := range stages {
		if !slices.Contains(known, s) {
			return yamlfile.IndexPath(at, i) + " is " + strconv.Quote(s) + ": use " + orList(known)
		}
	}
	return ""
}
