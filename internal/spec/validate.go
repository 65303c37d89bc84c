package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/registryname"
)

// maxClusterName leaves room for names that contain it: domains, units, network links.
const maxClusterName = 40

// ValidateOptions has the options of a validation.
type ValidateOptions struct {
	// Supported returns an error for an unsupported Kubernetes version, with a reason for
	// the user. Nil supports all.
	Supported func(version string) error
	// Recorded is the existing cluster; nil for a new one. It can keep settings that are
	// rejected for a new cluster.
	Recorded *v1alpha1.Cluster
}

// Validate finds all problems of a cluster with its defaults. It depends only on its
// arguments. The paths of its diagnostics are paths of the file; Loaded.Place adds the
// lines.
func Validate(c *v1alpha1.Cluster, opts ValidateOptions) diag.List {
	v := &validator{c: c, supported: opts.Supported, recorded: opts.Recorded}
	v.checkHeader()
	v.checkSSH(c.Spec.SSH, v1alpha1.SSH{}, "spec.ssh")
	hostValidator{v}.checkHosts()
	endpointValidator{v}.checkEndpoint()
	v.checkKubernetes()
	v.checkEtcd()
	v.checkContainerRuntime()
	networkValidator{v}.checkNetwork()
	v.checkRegistry()
	v.checkBundle()
	v.checkBundleKeys()
	v.checkDNS()
	v.checkSystem()
	v.checkHooks()
	v.checkAddons()
	managementValidator{v}.checkManagement()
	return v.found
}

// A validator collects the problems of a cluster. Separate types for large parts embed it.
type validator struct {
	c         *v1alpha1.Cluster
	supported func(string) error
	recorded  *v1alpha1.Cluster
	found     diag.List
}

func (v *validator) refuse(id, path, message, hint string) {
	v.found = append(v.found, diag.Diagnostic{ID: id, Severity: diag.Error, Path: path, Message: message, Hint: hint})
}

func (v *validator) warn(id, path, message, hint string) {
	v.found = append(v.found, diag.Diagnostic{ID: id, Severity: diag.Warning, Path: path, Message: message, Hint: hint})
}

// requireText reports an empty field and returns whether it is empty.
func (v *validator) requireText(path, value, hint string) bool {
	if value == "" {
		v.refuse(idMissingField, path, "this field is required", hint)
	}
	return value == ""
}

// checkOneOf checks a word from a list; words for future values get another message.
func (v *validator) checkOneOf(path, value string, known, toCome []string) {
	switch {
	case value == "" || slices.Contains(known, value):
	case slices.Contains(toCome, value):
		v.refuse(idNotSupportedYet, path, strconv.Quote(value)+" is not supported yet", "use "+orList(known))
	default:
		v.refuse(idUnknownValue, path, strconv.Quote(value)+" is not a valid value", SuggestWord(value, known))
	}
}

// SuggestWord returns a hint for an unknown word: a similar word, else all known words.
func SuggestWord(word string, known []string) string {
	if hint := diag.DidYouMean(word, known); hint != "" {
		return hint
	}
	return "use " + orList(known)
}

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func (v *validator) checkPort(path string, port int) {
	if port < 0 || port > 65535 {
		v.refuse(idInvalidPort, path, strconv.Itoa(port)+" is not a port", "use a port from 1 to 65535")
	}
}

func (v *validator) checkPositive(path string, d *metav1.Duration) bool {
	if d != nil && d.Duration <= 0 {
		v.refuse(idInvalidDuration, path, d.Duration.String()+" is not a positive duration", "write a duration above zero, such as 10m")
		return false
	}
	return true
}

func (v *validator) checkHeader() {
	c := v.c
	if !v.requireText("apiVersion", c.APIVersion, "write 'apiVersion: "+v1alpha1.APIVersion+"'") && c.APIVersion != v1alpha1.APIVersion {
		v.refuse(idUnknownKind, "apiVersion", "found "+strconv.Quote(c.APIVersion)+", but a cluster has "+strconv.Quote(v1alpha1.APIVersion), "")
	}
	if !v.requireText("kind", c.Kind, "write 'kind: "+Kind+"'") && c.Kind != Kind {
		v.refuse(idUnknownKind, "kind", "found "+strconv.Quote(c.Kind)+", but a cluster has "+strconv.Quote(Kind), "")
	}
	if v.requireText("metadata.name", c.Name, "write a cluster name: 'metadata: {name: prod}'") {
		return
	}
	if problems := NameProblems(c.Name); len(problems) > 0 {
		v.refuse(idInvalidName, "metadata.name",
			strconv.Quote(c.Name)+" is not a valid cluster name: "+strings.Join(problems, "; "), "use a name such as prod or edge-7")
	}
}

// NameProblems returns the reasons why name is not a valid cluster name; none if it is
// valid.
func NameProblems(name string) []string {
	if len(name) > maxClusterName {
		return []string{fmt.Sprintf("it has %d characters, but at most %d are allowed", len(name), maxClusterName)}
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return []string{"only a-z, 0-9 and '-' are allowed, with a letter or digit first and last"}
	}
	return nil
}

// Words of the file that are strings in the API types.
const (
	runtimeContainerd = "containerd"
	runtimeDocker     = "docker"
	pluginFlannel     = "flannel"
	pluginNone        = "none"
	backendVXLAN      = "vxlan"
	backendHostGW     = "host-gw"
	proxyNFTables     = "nftables"
	proxyIPTables     = "iptables"
	proxyIPVS         = "ipvs"
	proxyNone         = "none"
	dockerHub         = registryname.DockerHub
)

// sortedKeys makes the order of diagnostics deterministic.
func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
