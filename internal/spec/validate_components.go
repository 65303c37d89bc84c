package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release/settings"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

const (
	gatesFlag     = "feature-gates"
	pathGates     = "spec.kubernetes.featureGates"
	kubeletPath   = "spec.kubernetes.kubelet"
	kubeletGates  = "featureGates" // in a KubeletConfiguration
	pathScheduler = "spec.kubernetes.scheduler.extraArgs"
)

// ComponentSettings checks the flags, the feature gates and the kubelet fields of a
// cluster against a future Kubernetes version.
func ComponentSettings(c *v1alpha1.Cluster, version string) diag.List {
	c = c.DeepCopy()
	c.Spec.Kubernetes.Version = version
	v := &validator{c: c}
	v.checkComponents()
	v.checkKubeletConfig(kubeletPath+".config", c.Spec.Kubernetes.Kubelet.Config)
	return v.found
}

// A componentArgs has the extra arguments of a component, and their path.
type componentArgs struct {
	component, path string
	args            map[string]string
}

func (v *validator) listComponentArgs() []componentArgs {
	k := v.c.Spec.Kubernetes
	return []componentArgs{
		{settings.APIServer, pathArguments, k.APIServer.ExtraArgs},
		{settings.ControllerManager, controllerArgsPath, k.ControllerManager.ExtraArgs},
		{settings.Scheduler, pathScheduler, k.Scheduler.ExtraArgs},
		{settings.Kubelet, kubeletPath + ".extraArgs", k.Kubelet.ExtraArgs},
		{settings.Etcd, pathEtcdArgs, v.c.Spec.Etcd.ExtraArgs},
	}
}

// checkComponents checks flags and feature gates against the version. A minor version after
// all known ones is checked against the newest known one, with warnings.
func (v *validator) checkComponents() {
	version := v.c.Spec.Kubernetes.Version
	tables, err := settings.ReadTables()
	if err != nil {
		v.refuse(idInvalidVersion, "spec.kubernetes.version", err.Error(), "") // a test reads them all
		return
	}
	minor := versionSyntax.FindStringSubmatch(version)
	if minor == nil {
		return
	}
	at := slices.IndexFunc(tables, func(t settings.Table) bool { return t.Minor() == minor[1]+"."+minor[2] })
	if newest := len(tables) - 1; at < 0 && tables[newest].IsOlderThan(version) {
		at = newest
	}
	if at < 0 {
		return // older than all supported versions
	}
	c := componentChecker{validator: v, Table: tables[at], all: tables}
	for _, of := range v.listComponentArgs() {
		for _, name := range sortedKeys(of.args) {
			if name != gatesFlag || of.component == settings.Etcd { // etcd has separate gates
				c.checkFlag(of, name)
				continue
			}
			if len(v.c.Spec.Kubernetes.FeatureGates) > 0 && of.component != settings.Kubelet { // the kubelet uses both
				v.refuse(idConflictingFields, yamlfile.KeyPath(of.path, name), of.component+" would use these feature gates, and none from "+pathGates,
					"write all feature gates at "+pathGates+", or all of them here")
			}
			c.checkGatesOf(yamlfile.KeyPath(of.path, name), of.component, of.args[name])
		}
	}
	every := []string{settings.APIServer, settings.ControllerManager, settings.Scheduler, settings.Kubelet}
	if v.c.Spec.Kubernetes.ProxyMode != proxyNone {
		every = append(every, settings.Proxy)
	}
	for _, name := range sortedKeys(v.c.Spec.Kubernetes.FeatureGates) {
		if featureGate.MatchString(name) {
			c.checkGate(yamlfile.KeyPath(pathGates, name), name, v.c.Spec.Kubernetes.FeatureGates[name], every)
		}
	}
	gates, _ := v.c.Spec.Kubernetes.Kubelet.Config[kubeletGates].(map[string]any)
	for _, name := range sortedKeys(gates) {
		if value, ok := gates[name].(bool); ok {
			c.checkGate(yamlfile.KeyPath(yamlfile.KeyPath(kubeletPath+".config", kubeletGates), name), name, value, []string{settings.Kubelet})
		}
	}
}

// A componentChecker checks settings against the table of a minor.
type componentChecker struct {
	*validator
	settings.Table
	all []settings.Table
}

// reportUnknown reports a setting that the version does not have. A version that is newer than
// the table can have it, unless an earlier minor version had it.
func (c componentChecker) reportUnknown(id, at, message string, has func(settings.Table) bool, near string) {
	var others []string
	before := false
	for _, t := range c.all {
		if has(t) {
			others = append(others, "v"+t.Minor())
			before = before || !c.IsOlderThan(t.Kubernetes)
		}
	}
	hint := "leave it out"
	switch {
	case len(others) > 0:
		has := " has it"
		if len(others) > 1 {
			has = " have it"
		}
		hint += ": only " + strings.Join(others, " and ") + has
	case near != "":
		hint = near
	}
	if version := c.c.Spec.Kubernetes.Version; c.IsOlderThan(version) && !before {
		c.warn(id, at, message+" in the versions known to this Slipway; the newest one is "+c.Kubernetes, hint)
		return
	}
	c.refuse(id, at, message, hint)
}

// programVersion returns a component with its version, for people.
func (c componentChecker) programVersion(component string) string {
	if component == settings.Etcd {
		return "etcd " + c.Etcd
	}
	return component + " " + c.c.Spec.Kubernetes.Version
}

func (c componentChecker) checkFlag(of componentArgs, name string) {
	at := yamlfile.KeyPath(of.path, name)
	kind, ok := c.FlagType(of.component, name)
	has := func(t settings.Table) bool { _, ok := t.FlagType(of.component, name); return ok }
	switch {
	case !argumentSyntax.MatchString(name): // already rejected
	case !ok:
		near := diag.DidYouMean(name, c.FlagNames(of.component))
		c.reportUnknown(idUnknownArgument, at, c.programVersion(of.component)+" has no flag --"+name, has, near)
	case !isFlagValue(kind, of.args[name]):
		message := fmt.Sprintf("%q is not a value of --%s, which is of type %s", of.args[name], name, kind)
		c.refuse(idInvalidArgument, at, message, map[string]string{
			"bool": "write \"true\" or \"false\"", "duration": "write a number and a unit (h, m or s): 90s, 10m",
		}[kind])
	}
}

// isFlagValue reports whether a flag accepts a value, as far as its type shows.
func isFlagValue(kind, value string) bool {
	var err error
	switch kind {
	case "bool":
		_, err = strconv.ParseBool(value)
	case "int", "int32", "int64":
		_, err = strconv.ParseInt(value, 0, 64)
	case "uint", "uint32", "uint64":
		_, err = strconv.ParseUint(value, 0, 64)
	case "float32", "float64":
		_, err = strconv.ParseFloat(value, 64)
	case "duration":
		_, err = time.ParseDuration(value)
	}
	return err == nil
}

// checkGatesOf checks the value of a component's flag: "A=true,B=false", each optionally with
// the prefix "kube:".
func (c componentChecker) checkGatesOf(at, component, text string) {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(pair), "kube:"), "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		switch name = strings.TrimSpace(name); {
		case name == "" && value == "":
		case err != nil:
			c.refuse(idInvalidArgument, at, strconv.Quote(pair)+" is not a feature gate setting",
				"write NAME=true or NAME=false, separated by commas")
		default:
			c.checkGate(at, name, on, []string{component})
		}
	}
}

// checkGate checks a feature gate of components.
func (c componentChecker) checkGate(at, name string, value bool, components []string) {
	gate, ok := c.Gates[name]
	if !ok {
		has := func(t settings.Table) bool { _, ok := t.Gates[name]; return ok }
		near := diag.DidYouMean(name, slices.Sorted(maps.Keys(c.Gates)))
		c.reportUnknown(idFeatureGate, at, "Kubernetes "+c.c.Spec.Kubernetes.Version+" has no feature gate "+strconv.Quote(name), has, near)
		return
	}
	for _, component := range components {
		if !gate.IsKnownTo(component) {
			c.refuse(idFeatureGate, at, c.programVersion(component)+" has no feature gate "+strconv.Quote(name)+", and would not start",
				"set the gate only for the components that have it: kubelet.config.featureGates, or feature-gates in extraArgs")
			return
		}
	}
	if gate.Locked && value != gate.Default {
		c.refuse(idFeatureGate, at,
			fmt.Sprintf("feature gate %s is locked to %t in Kubernetes v%s: no component would start with this value",
				name, gate.Default, c.Minor()), "leave it out")
	}
}
