// Package crdstest has objects that follow or break the rules of the definitions. Tests check
// them without and with an API server. It links into no program.
package crdstest

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/testutil/definition"
)

// A Case is an object, or a change of one.
type Case struct {
	Name string
	// Old is the object before the change, nil if New is created. Its status counts too.
	Old map[string]any
	New map[string]any
	// Field is the field of the refusal, "" if New is accepted.
	Field string
}

// cluster is a small cluster. %s stands for more fields of its spec.
const cluster = `
apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  hosts:
  - {name: cp-1, address: 10.0.0.11, roles: [control-plane]}
  - {name: w-1, address: 10.0.0.12, roles: [worker]}
%s`

// created is the status of an object whose cluster exists.
const created = `
status:
  conditions: [{type: Created, status: "True", reason: Done, message: "", lastTransitionTime: "2026-11-27T00:00:00Z"}]
`

// decodeCluster returns a cluster with more fields of its spec.
func decodeCluster(t *testing.T, fields string) map[string]any {
	t.Helper()
	return definition.DecodeObject(t, fmt.Sprintf(cluster, fields))
}

// ClusterCases returns cases of Clusters. All objects have the name prod, except those about
// names.
func ClusterCases(t *testing.T) []Case {
	t.Helper()
	out := append(fieldCases(t), secretCases(t)...)
	out = append(out, limitCases(t)...)
	out = append(out, nameCases(t)...)
	out = append(out, fixedFieldCases(t)...)
	return append(out, hostCases(t)...)
}

// fieldCases has good and bad values of fields.
func fieldCases(t *testing.T) (out []Case) {
	t.Helper()
	for _, tc := range []struct{ name, good, bad, field string }{
		{
			"kubelet configuration",
			"  kubernetes: {kubelet: {config: {maxPods: 200, evictionHard: {memory.available: 5%}}}}",
			"  kubernetes: {kubelet: {config: 3}}", "spec.kubernetes.kubelet.config",
		},
		{
			"values", "  addons: [{name: web, values: {replicas: 2, deep: [{a: null}]}}]",
			"  addons: [{name: web, values: [1]}]", "spec.addons[0].values",
		},
		{"add-on names", "  addons: [{name: web}, {name: db}]", "  addons: [{name: web}, {name: web}]", "spec.addons[1]"},
		{
			"registries", "  registry: {auths: [{registry: a}, {registry: b}]}",
			"  registry: {auths: [{registry: a}, {registry: a}]}", "spec.registry.auths[1]",
		},
		{
			"endpoint mode", "  controlPlaneEndpoint: {mode: haproxy}",
			"  controlPlaneEndpoint: {mode: nginx}", "spec.controlPlaneEndpoint.mode",
		},
		{"version", "  kubernetes: {version: v1.37.1}", "  kubernetes: {version: 1.37.1}", "spec.kubernetes.version"},
		{
			"duration", "  kubernetes: {certificates: {validity: 8760h}}",
			"  kubernetes: {certificates: {validity: 7}}", "spec.kubernetes.certificates.validity",
		},
		{"approval", "  approval: Manual", "  approval: Never", "spec.approval"},
		{
			"files", "  filesFrom: [{secretRef: {name: a}}]",
			"  filesFrom: [{secretRef: {name: a}, configMapRef: {name: b}}]", "spec.filesFrom[0]",
		},
		{
			"files of Slipway", "  filesFrom: [{secretRef: {name: a}}]",
			"  filesFrom: [{secretRef: {name: slipway.lab.kubeconfig}}]", "spec.filesFrom[0]",
		},
		{
			"copy", "  etcd: {backup: {copies: [{name: a, directory: /a}]}}",
			"  etcd: {backup: {copies: [{name: a, directory: /a, " +
				"s3: {endpoint: a, bucket: a, accessKeyFrom: {env: a}, secretKeyFrom: {env: b}}}]}}",
			"spec.etcd.backup.copies[0]",
		},
		{
			"copy without target", "  etcd: {backup: {copies: [{name: a, directory: /a}, {name: b, directory: /b}]}}",
			"  etcd: {backup: {copies: [{name: a}]}}", "spec.etcd.backup.copies[0]",
		},
		{
			"window", `  maintenance: {windows: [{start: "22:30", duration: 4h}]}`,
			`  maintenance: {windows: [{start: "25:30", duration: 4h}]}`, "spec.maintenance.windows[0].start",
		},
		{
			"window weekday", `  maintenance: {windows: [{days: [Sat], start: "22:30", duration: 4h}]}`,
			`  maintenance: {windows: [{days: [Sabado], start: "22:30", duration: 4h}]}`, "spec.maintenance.windows[0].days[0]",
		},
	} {
		out = append(out,
			Case{Name: "good " + tc.name, New: decodeCluster(t, tc.good)},
			Case{Name: "bad " + tc.name, New: decodeCluster(t, tc.bad), Field: tc.field})
	}
	return out
}

// secretCases has good and bad references to secrets, at each place of one.
func secretCases(t *testing.T) (out []Case) {
	t.Helper()
	const sftp = "address: a, directory: /a, hostKey: a, user: a"
	for _, place := range []struct{ text, field string }{
		{
			"  etcd: {backup: {copies: [{name: a, s3: {endpoint: a, bucket: a, accessKeyFrom: %s, secretKeyFrom: {env: a}}}]}}",
			"spec.etcd.backup.copies[0].s3.accessKeyFrom",
		},
		{
			"  etcd: {backup: {copies: [{name: a, s3: {endpoint: a, bucket: a, accessKeyFrom: {env: a}, secretKeyFrom: %s}}]}}",
			"spec.etcd.backup.copies[0].s3.secretKeyFrom",
		},
		{"  etcd: {backup: {copies: [{name: a, ssh: {" + sftp + ", privateKeyFrom: %s}}]}}", "spec.etcd.backup.copies[0].ssh.privateKeyFrom"},
		{"  registry: {auths: [{registry: a, passwordFrom: %s}]}", "spec.registry.auths[0].passwordFrom"},
		{"  registry: {private: {passwordFrom: %s}}", "spec.registry.private.passwordFrom"},
		{"  ssh: {passwordFrom: %s}", "spec.ssh.passwordFrom"},
		{"  ssh: {passphraseFrom: %s}", "spec.ssh.passphraseFrom"},
		{"  ssh: {sudoPasswordFrom: %s}", "spec.ssh.sudoPasswordFrom"},
		{"  ssh: {bastion: {address: a, passwordFrom: %s}}", "spec.ssh.bastion.passwordFrom"},
		{"  ssh: {bastion: {address: a, passphraseFrom: %s}}", "spec.ssh.bastion.passphraseFrom"},
		{hostWithSSH("{passwordFrom: %s}"), "spec.hosts[2].ssh.passwordFrom"},
		{hostWithSSH("{passphraseFrom: %s}"), "spec.hosts[2].ssh.passphraseFrom"},
		{hostWithSSH("{sudoPasswordFrom: %s}"), "spec.hosts[2].ssh.sudoPasswordFrom"},
		{hostWithSSH("{bastion: {address: a, passwordFrom: %s}}"), "spec.hosts[2].ssh.bastion.passwordFrom"},
		{hostWithSSH("{bastion: {address: a, passphraseFrom: %s}}"), "spec.hosts[2].ssh.bastion.passphraseFrom"},
	} {
		for name, secret := range map[string]string{"file": `{file: a, env: ""}`, "variable": "{env: a}"} {
			out = append(out, Case{Name: name + " for " + place.field, New: decodeCluster(t, fmt.Sprintf(place.text, secret))})
		}
		for name, secret := range map[string]string{"two sources": "{file: a, env: b}", "no source": "{}"} {
			out = append(out, Case{Name: name + " for " + place.field, New: decodeCluster(t, fmt.Sprintf(place.text, secret)), Field: place.field})
		}
	}
	return out
}

// hostWithSSH returns another host with SSH settings.
func hostWithSSH(settings string) string {
	return "  - {name: w-2, address: 10.0.0.13, roles: [worker], ssh: " + settings + "}"
}

// nameCases has good and bad names of clusters.
func nameCases(t *testing.T) (out []Case) {
	t.Helper()
	for _, tc := range []struct{ name, object, field string }{
		{"name of 40 characters", strings.Repeat("a", 40), ""},
		{"name of 41 characters", strings.Repeat("a", 41), "<nil>"},
		{"name with a dot", "prod.eu", "<nil>"},
		{"name with hyphens", "prod-eu-1", ""},
	} {
		object := decodeCluster(t, "")
		object["metadata"].(map[string]any)["name"] = tc.object
		out = append(out, Case{Name: tc.name, New: object, Field: tc.field})
	}
	return out
}

// fixedFieldCases changes fields before and after the creation of the cluster.
func fixedFieldCases(t *testing.T) []Case {
	t.Helper()
	out := []Case{{
		Name: "correction before creation", Old: decodeCluster(t, "  network: {podCIDR: [10.0.0.0/8]}"),
		New: decodeCluster(t, "  network: {podCIDR: [10.244.0.0/16]}"),
	}}
	for _, tc := range []struct{ name, old, new, field string }{
		{"pod range", "  network: {podCIDR: [10.244.0.0/16]}", "  network: {podCIDR: [10.200.0.0/16]}", "spec.network.podCIDR"},
		{"default pod range", "", "  network: {podCIDR: [10.244.0.0/16]}", ""},
		{"other pod range", "", "  network: {podCIDR: [10.200.0.0/16]}", "spec.network.podCIDR"},
		{"service range", "", "  network: {serviceCIDR: [10.97.0.0/16]}", "spec.network.serviceCIDR"},
		{"plugin", "  network: {plugin: flannel}", "  network: {plugin: none}", "spec.network.plugin"},
		{"domain of services", "", "  kubernetes: {dnsDomain: example.com}", "spec.kubernetes.dnsDomain"},
		{"etcd", "  etcd: {type: managed}", "", "spec.etcd.type"},
		{"port", "  controlPlaneEndpoint: {port: 6443}", "  controlPlaneEndpoint: {port: 8443}", "spec.controlPlaneEndpoint.port"},
		{"domain", "  controlPlaneEndpoint: {domain: k8s.example.com}", "", "spec.controlPlaneEndpoint.domain"},
		{"empty pod range", "  network: {podCIDR: []}", "  network: {podCIDR: [10.244.0.0/16]}", ""},
		{"empty domain", "  controlPlaneEndpoint: {domain: \"\", port: 0}", "", ""},
		{"default domain", "", "  controlPlaneEndpoint: {domain: api.prod.internal}", ""},
		{"version", "  kubernetes: {version: v1.36.4}", "  kubernetes: {version: v1.37.1}", ""},
		{"endpoint mode", "  controlPlaneEndpoint: {mode: none}", "  controlPlaneEndpoint: {mode: haproxy}", ""},
		{"settings and add-on", "", "  addons: [{name: web}]\n  kubernetes: {hardening: true}", ""},
	} {
		out = append(out, Case{
			Name: "change of " + tc.name, Old: decodeCluster(t, tc.old+created), New: decodeCluster(t, tc.new+created), Field: tc.field,
		})
	}
	return out
}

// hostCases changes, adds and removes hosts.
func hostCases(t *testing.T) (out []Case) {
	t.Helper()
	hosts := func(list string) map[string]any {
		return definition.DecodeObject(t,
			"apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec: {hosts: ["+list+"]}\n")
	}
	const first = "{name: a, address: 10.0.0.1, roles: [control-plane]}"
	const second = "{name: b, address: 10.0.0.2, roles: [worker, etcd]}"
	for _, tc := range []struct{ name, new, field string }{
		{"same", first + ", " + second, ""},
		{"order", second + ", " + first, ""},
		{"machine", first + ", {name: b, address: 10.0.0.9, roles: [etcd, worker]}", ""},
		{"registry", first + ", {name: b, address: 10.0.0.2, roles: [worker, etcd, registry]}", ""},
		{"added", first + ", " + second + ", {name: c, address: 10.0.0.3, roles: [worker]}", ""},
		{"removed", first, ""},
		{"changed", first + ", {name: b, address: 10.0.0.2, roles: [worker]}", "spec.hosts[1].roles"},
		{"with one name", first + ", {name: a, address: 10.0.0.2, roles: [control-plane]}", "spec.hosts[1]"},
	} {
		out = append(out, Case{Name: "hosts " + tc.name, Old: hosts(first + ", " + second), New: hosts(tc.new), Field: tc.field})
	}
	return out
}

// ManyHosts returns a Cluster with 1,000 hosts.
func ManyHosts(t *testing.T) map[string]any {
	t.Helper()
	var hosts strings.Builder
	for i := range 1000 {
		role := "worker"
		if i < 5 {
			role = "control-plane"
		}
		fmt.Fprintf(&hosts, "  - {name: host-%d, address: 10.0.%d.%d, roles: [%s], labels: {rack: r%d}}\n",
			i, i/250, i%250+1, role, i/20)
	}
	return definition.DecodeObject(t,
		"apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  hosts:\n"+hosts.String()+created)
}
