package live

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// unsaid lists kubeadm settings that a cluster file cannot express, with the values in
// Slipway's clusters; "" means unset.
var unsaid = []struct{ at, usual, path string }{
	{"certificatesDir", "/etc/kubernetes/pki", kubernetesPath + ".certificates"},
	{"encryptionAlgorithm", "RSA-2048", kubernetesPath + ".certificates"},
	{"imageRepository", "registry.k8s.io", kubernetesPath},
	{"featureGates", "", kubernetesPath},
	{"dns.imageRepository", "", "spec.dns"},
	{"dns.imageTag", "", "spec.dns"},
	{"dns.disabled", "", "spec.dns"},
	{"etcd.local.serverCertSANs", "", "spec.etcd"},
	{"etcd.local.peerCertSANs", "", "spec.etcd"},
	{"etcd.local.extraEnvs", "", "spec.etcd"},
	{"etcd.local.imageRepository", "", "spec.etcd"},
	{"etcd.local.imageTag", "", "spec.etcd"},
}

// reportUnsupported reports what a cluster file cannot express of kubeadm's configuration.
func (d *describer) reportUnsupported() error {
	var all map[string]any
	if err := yaml.Unmarshal(d.s.Cluster, &all); err != nil {
		return fmt.Errorf("reading the kubeadm configuration: %w", err)
	}
	for _, u := range unsaid {
		if v, ok := lookUpPath(all, u.at); ok && fmt.Sprint(v) != u.usual {
			d.noteDifference(u.path, fmt.Sprintf("kubeadm has %s: %v, and a cluster file cannot express that", u.at, v), "")
		}
	}
	for _, at := range []string{"apiServer", "controllerManager", "scheduler", "etcd.local"} {
		path := kubernetesPath + "." + at
		if at == "etcd.local" {
			path = "spec.etcd"
		}
		args, _ := lookUpPath(all, at+".extraArgs")
		for _, name := range repeatedNames(args) {
			d.noteDifference(path+".extraArgs", "the argument "+name+" is given more than once; the cluster file has only the last value", "")
		}
	}
	return nil
}

// lookUpPath returns the value at a path of keys, separated by dots.
func lookUpPath(in map[string]any, path string) (any, bool) {
	key, rest, deeper := strings.Cut(path, ".")
	v := in[key]
	if deeper {
		below, _ := v.(map[string]any)
		return lookUpPath(below, rest)
	}
	set := fmt.Sprint(v)
	return v, !slices.Contains([]string{"<nil>", "", "false", "[]", "map[]"}, set)
}

// repeatedNames returns the names that a list of arguments has more than once.
func repeatedNames(args any) []string {
	list, _ := args.([]any)
	seen := map[string]int{}
	for _, item := range list {
		arg, _ := item.(map[string]any)
		seen[fmt.Sprint(arg["name"])]++
	}
	var out []string
	for name, n := range seen {
		if n > 1 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
