package spec

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	kubeyaml "sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/testutil/definition"
)

// onlyCommandLine has the problems that only the command line finds, each with the reason why the
// definition of Cluster does not. The management plane runs the same validation.
var onlyCommandLine = map[string]string{
	"bundle-key-invalid":    "keys are parsed",
	"cidr-overlap":          "it compares ranges and addresses of several fields",
	"cidr-size":             "it compares a range with the number of hosts",
	"conflicting-fields":    "it compares fields of different parts",
	"duplicate-address":     "it compares normalized addresses of several fields",
	"duplicate-entry":       "it compares entries by their meaning, not by their text",
	"duplicate-name":        "it compares normalized names of registries, and names with defaults",
	"endpoint-mode":         "it compares the mode with the number of control planes",
	"insecure-source":       "a warning in a definition is not possible",
	"invalid-address":       "addresses and URLs are parsed",
	"invalid-argument":      "it depends on the version of the component",
	"invalid-cidr":          "ranges are parsed",
	"invalid-duration":      "it compares durations of several fields",
	"invalid-label":         "the keys of a map have no schema",
	"invalid-name":          "the keys of a map have no schema, and DNS names are parsed",
	"invalid-recipient":     "keys are parsed",
	"invalid-taint":         "taints are parsed",
	"invalid-value":         "the text is parsed",
	"invalid-version":       "minor versions are parsed",
	"ip-families":           "it compares IP versions of several fields",
	"missing-field":         "the field is only required with certain values of others",
	"no-control-plane":      "it needs all hosts, which is too expensive for a rule",
	"no-etcd-host":          "it needs all hosts, which is too expensive for a rule",
	"reserved-label":        "the keys of a map have no schema",
	"unsupported-version":   "it depends on this version of Slipway",
	"unknown-field":         "kubectl checks unknown fields in its strict mode",
	"unknown-kubelet-field": "the fields depend on the version of the kubelet",
	"wrong-type":            "the types of a kubelet's fields depend on its version",
}

// decodeFile decodes a cluster file as the command line does. kubectl reads YAML 1.1, in which
// words such as yes and on are not text. ok is false if the file is not one object.
func decodeFile(text string) (object map[string]any, ok bool) {
	if strings.Count(text, "\n---") > 0 {
		return nil, false
	}
	var value map[string]any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil || value == nil {
		return nil, false
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, false
	}
	return value, kubeyaml.Unmarshal(raw, &object) == nil
}

// concerns reports whether a problem at a path is about a field: the field itself, a part of it,
// or an object that contains it.
func concerns(at, field string) bool {
	return within(at, field) || within(field, at)
}

// TestDefinition_AgreesAboutFiles compares the definition with the files that the command line
// accepts and refuses.
func TestDefinition_AgreesAboutFiles(t *testing.T) {
	d := definition.LoadDefinition(t, crds.Clusters)
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	used := map[string]bool{}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			text := readPage(t, name)
			object, ok := decodeFile(text)
			if !ok || object["apiVersion"] == "kubekey.kubesphere.io/v1alpha2" {
				return
			}
			var problems diag.List
			if _, err := loader.Load(name, []byte(text)); err != nil && !errors.As(err, &problems) {
				t.Fatal(err)
			}
			got := d.CheckObject(t, definition.DecodeObject(t, mustMarshal(t, object)), nil)
			for _, e := range problems.Errors() {
				if !slices.ContainsFunc(got, func(g string) bool { return concerns(fieldOf(g), e.Path) }) {
					used[e.ID] = true
					if onlyCommandLine[e.ID] == "" {
						t.Errorf("only the command line refuses %s: %s (%s)", e.Path, e.Message, e.ID)
					}
				}
			}
			for _, g := range got {
				if !slices.ContainsFunc(problems, func(e diag.Diagnostic) bool { return concerns(e.Path, fieldOf(g)) }) {
					t.Errorf("only the definition refuses %s", g)
				}
			}
		})
	}
	for id := range onlyCommandLine {
		if !used[id] {
			t.Errorf("no file has a problem %s that only the command line finds: remove the reason", id)
		}
	}
}

// fieldOf returns the field in "path: reason".
func fieldOf(problem string) string {
	path, _, _ := strings.Cut(problem, ": ")
	if path == "<nil>" {
		path = "metadata.name"
	}
	return path
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A limited is a part of a schema with its limits.
type limited struct {
	Properties map[string]*limited `json:"properties"`
	Items      *limited            `json:"items"`
	Enum       []any               `json:"enum"`
	Pattern    string              `json:"pattern"`
	Minimum    *int64              `json:"minimum"`
	Maximum    *int64              `json:"maximum"`
	MinLength  *int                `json:"minLength"`
	MaxLength  *int                `json:"maxLength"`
	MinItems   *int                `json:"minItems"`
	MaxItems   *int                `json:"maxItems"`
}

// A probe is a value of a field at a limit, or beyond it.
type probe struct {
	path   string // with [] for the first item of a list
	values []any  // alternatives: the command line can refuse some of them for other reasons
	within bool
}

func probesOf(s *limited, path string) (out []probe) {
	add := func(within bool, values ...any) { out = append(out, probe{path, values, within}) }
	for _, word := range s.Enum {
		add(true, word)
	}
	if len(s.Enum) > 0 {
		add(false, "no-such-word")
	}
	if s.Minimum != nil {
		add(true, *s.Minimum)
		add(false, *s.Minimum-1)
	}
	if s.Maximum != nil {
		add(true, *s.Maximum)
		add(false, *s.Maximum+1)
	}
	if s.MaxLength != nil && !strings.Contains(s.Pattern, "ns|us") { // a longer duration has leading zeros
		add(true, longTexts(*s.MaxLength)...)
		add(false, longTexts(*s.MaxLength+1)...)
	}
	if s.MinLength != nil {
		add(false, "")
	}
	if s.MinItems != nil {
		add(false, []any{})
	}
	if s.MaxItems != nil {
		add(true, longList(path, *s.MaxItems))
		add(false, longList(path, *s.MaxItems+1))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if path+name != "status" {
			out = append(out, probesOf(s.Properties[name], strings.TrimPrefix(path+"."+name, "."))...)
		}
	}
	if s.Items != nil {
		out = append(out, probesOf(s.Items, path+"[]")...)
	}
	return out
}

// longTexts returns texts of a length: one word, and parts of a DNS name.
func longTexts(length int) []any {
	parts := strings.Repeat(strings.Repeat("a", 62)+".", 5)[:length]
	return []any{strings.Repeat("a", length), strings.TrimSuffix(parts, ".") + strings.Repeat("a", length-len(strings.TrimSuffix(parts, ".")))}
}

// longList returns n different items of a list.
func longList(path string, n int) []any {
	item := map[string]func(i int) any{
		"spec.hosts": func(i int) any {
			role := "worker"
			if i < 3 {
				role = "control-plane"
			}
			at := strconv.Itoa(i/250) + "." + strconv.Itoa(i%250+1)
			return map[string]any{"name": "host-" + strconv.Itoa(i), "address": "192.168." + at, "roles": []any{role}}
		},
		"spec.hosts[].roles":       func(i int) any { return []string{"control-plane", "worker", "etcd", "registry", "registry"}[i] },
		"spec.dns.upstream":        func(i int) any { return "192.0.2." + strconv.Itoa(i) },
		"spec.dns.zones[].servers": func(i int) any { return "192.0.2." + strconv.Itoa(i) },
		"spec.filesFrom":           func(int) any { return map[string]any{"secretRef": map[string]any{"name": "a"}} },
		"spec.maintenance.windows": func(int) any { return map[string]any{"start": "22:30", "duration": "4h"} },
		"spec.network.podCIDR":     func(i int) any { return []string{"10.244.0.0/16", "fd00::/48", "fd01::/48"}[i] },
		"spec.network.serviceCIDR": func(i int) any { return []string{"10.96.0.0/16", "fd08::/112", "fd09::/112"}[i] },
	}[path]
	var out []any
	for i := range n {
		if item == nil {
			return nil // the caller fails
		}
		out = append(out, item(i))
	}
	return out
}

// textProbes have values of fields with a pattern or a rule.
var textProbes = []probe{
	{"spec.kubernetes.version", []any{"v1.37.1"}, true},
	{"spec.kubernetes.version", []any{"1.37.1", "v1.37", "v1.37.1-rc.1", "latest"}, false},
	{"spec.maintenance.windows[].start", []any{"00:00"}, true},
	{"spec.maintenance.windows[].start", []any{"24:00", "7:30", "07:60", "", "07:30:00"}, false},
	{"spec.maintenance.windows[].duration", []any{"1m"}, true},
	{"spec.maintenance.windows[].duration", []any{"24h"}, true},
	{"spec.maintenance.windows[].duration", []any{"59s", "24h1s", "soon", "-1h", "", "1d"}, false},
	{"spec.etcd.backup.every", []any{"1m"}, true},
	{"spec.etcd.backup.every", []any{"59s", "-1h", "1 h"}, false},
	{"spec.etcd.backup.drillEvery", []any{"0"}, true},
	{"spec.etcd.backup.drillEvery", []any{"168h0m0s"}, true},
	{"spec.addons[].timeout", []any{"+1.5m30s"}, true},
	{"spec.addons[].timeout", []any{"1000000us"}, true},
	{"spec.addons[].timeout", []any{"0s", "-1s", "1.2.3s", "5"}, false},
	{"spec.hooks[].timeout", []any{"1s"}, true},
	{"spec.hooks[].timeout", []any{"0", "-1s"}, false},
	{"spec.kubernetes.certificates.validity", []any{"8760h"}, true},
	{"spec.kubernetes.certificates.validity", []any{"0s", "-1s", "1y"}, false},
	{"spec.kubernetes.certificates.caValidity", []any{"87600h"}, true},
	{"spec.kubernetes.certificates.caValidity", []any{"0s", "-1s"}, false},
	{"spec.network.flannel.mtu", []any{int64(576)}, true},
	{"spec.network.flannel.mtu", []any{int64(575), int64(1)}, false},
	{"spec.hosts[].name", []any{"a.b-c.9"}, true},
	{"spec.hosts[].name", []any{"A", "a_b", "-a", "a-", "a..b", ".a", "a."}, false},
	{"spec.addons[].name", []any{"a-9"}, true},
	{"spec.addons[].name", []any{"A", "a_b", "-a", "a-", "a.b"}, false},
	{"spec.addons[].namespace", []any{""}, true},
	{"spec.addons[].namespace", []any{"A", "a_b", "-a", "a-", "a.b"}, false},
	{"spec.hooks[].name", []any{"a-9"}, true},
	{"spec.hooks[].name", []any{"A", "a_b", "-a", "a-", "a.b"}, false},
	{"spec.etcd.backup.copies[].name", []any{"a-9"}, true},
	{"spec.etcd.backup.copies[].name", []any{"A", "a_b", "-a", "a-", "a.b"}, false},
	{"spec.ssh.sudoPasswordFrom", []any{map[string]any{"file": "a", "env": ""}}, true},
	{"spec.ssh.sudoPasswordFrom", []any{map[string]any{"file": "a", "env": "b"}, map[string]any{"file": ""}, map[string]any{}}, false},
	{"spec.filesFrom[]", []any{map[string]any{}}, false},
	{"spec.etcd.backup.copies[]", []any{map[string]any{"name": "a"}}, false},
}

// differences have a reason for each limit at which the command line and the definition differ.
var differences = map[string]string{
	"spec.controlPlaneEndpoint.kubeVIP.bgp.peers beyond": "the command line refuses the object with this list",
	"spec.hooks[].roles[] within":                        "the items have the type of the roles of hosts",
	"spec.hosts beyond":                                  "the estimated cost of the rules needs a limit",
	"spec.network.podCIDR[] within":                      "no range is as long as the limit, which the cost of the rules needs",
	"spec.network.serviceCIDR[] within":                  "no range is as long as the limit, which the cost of the rules needs",
}

// bases have the settings with which fields have an effect: a file, and other values.
var bases = []struct {
	field, file string
	with        map[string]any
}{
	{"spec.hosts[].roles", "etcd-managed", nil},
	{"spec.etcd.type", "etcd-managed", nil},
	{"spec.etcd.external", "etcd-external", nil},
	{"spec.controlPlaneEndpoint.kubeVIP", "everything", map[string]any{
		"spec.controlPlaneEndpoint.mode": "kube-vip", "spec.controlPlaneEndpoint.kubeVIP.announce": "bgp",
	}},
	{"spec.controlPlaneEndpoint.routerID", "everything", map[string]any{"spec.controlPlaneEndpoint.mode": "keepalived"}},
	{"spec.registry.private", "everything", map[string]any{"spec.hosts[].roles": []any{"control-plane", "registry"}}},
	{"spec.maintenance", "management", nil},
	{"spec", "everything", nil},
}

// TestDefinition_HasLimitsOfCommandLine sets each field with a limit to values at the limit, which
// both must accept, and beyond the limit, which both must refuse.
func TestDefinition_HasLimitsOfCommandLine(t *testing.T) {
	d := definition.LoadDefinition(t, crds.Clusters)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *limited `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := kubeyaml.Unmarshal(crds.Clusters, &crd); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range slices.Concat(probesOf(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, ""), textProbes) {
		byFile, byDefinition := 0, 0 // how many values are accepted
		for _, value := range p.values {
			object, field := withValue(t, p.path, value)
			text := mustMarshal(t, object)
			var problems diag.List
			if _, err := loader.Load("cluster.yaml", []byte(text)); err != nil && !errors.As(err, &problems) {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(problems.Errors(), func(e diag.Diagnostic) bool { return within(e.Path, field) }) {
				byFile++
			}
			got := d.CheckObject(t, definition.DecodeObject(t, text), nil)
			if !slices.ContainsFunc(got, func(g string) bool { return within(fieldOf(g), field) }) {
				byDefinition++
			}
		}
		fits := byFile == 0 && byDefinition == 0
		if p.within {
			fits = byFile > 0 && byDefinition == len(p.values)
		}
		key := p.path + map[bool]string{true: " within", false: " beyond"}[p.within]
		if fits {
			continue
		}
		used[key] = true
		if differences[key] == "" {
			t.Errorf("%s: %v: the command line accepts %d of %d values, the definition %d", key, p.values, byFile, len(p.values), byDefinition)
		}
	}
	for key := range differences {
		if !used[key] {
			t.Errorf("there is no difference %q: remove the reason", key)
		}
	}
}

// within reports whether a path is a field or a part of it.
func within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// withValue returns an accepted cluster with another value of a field, and the path of the field.
func withValue(t *testing.T, path string, value any) (object map[string]any, field string) {
	t.Helper()
	for _, base := range bases {
		if !within(path, base.field) {
			continue
		}
		object, ok := decodeFile(readPage(t, "testdata/accepted/"+base.file+".yaml"))
		if !ok {
			t.Fatal("the base of the test cannot be read")
		}
		for other, value := range base.with {
			setValue(object, strings.Split(strings.ReplaceAll(other, "[]", ".[]"), "."), value)
		}
		setValue(object, strings.Split(strings.ReplaceAll(path, "[]", ".[]"), "."), value)
		return object, strings.ReplaceAll(path, "[]", "[0]")
	}
	t.Fatalf("no base has %s", path)
	return nil, ""
}

// setValue returns an object or a list with a value at a path. Objects on the way are added if they
// are missing.
func setValue(at any, names []string, value any) any {
	if len(names) == 0 {
		return value
	}
	if names[0] == "[]" {
		list, _ := at.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = setValue(list[0], names[1:], value)
		return list
	}
	object, _ := at.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[names[0]] = setValue(object[names[0]], names[1:], value)
	return object
}
