package crds

import (
	"fmt"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/testutil/definition"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	return definition.DecodeObject(t, text)
}

// cluster is a small cluster. %s stands for more fields of its spec.
const cluster = `
apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: prod, namespace: default}
spec:
  hosts:
  - {name: cp-1, address: 10.0.0.11, roles: [control-plane]}
  - {name: w-1, address: 10.0.0.12, roles: [worker]}
%s`

func TestDefinitions_AreValid(t *testing.T) {
	definition.LoadDefinition(t, Clusters)
	definition.LoadDefinition(t, Operations)
}

// TestClusters_CheckFields has good and bad values of fields.
func TestClusters_CheckFields(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	for name, tc := range map[string]struct{ good, bad, want string }{
		"kubelet configuration": {
			"  kubernetes: {kubelet: {config: {maxPods: 200, evictionHard: {memory.available: 5%}}}}",
			"  kubernetes: {kubelet: {config: 3}}", "spec.kubernetes.kubelet.config",
		},
		"values": {
			"  addons: [{name: web, values: {replicas: 2, deep: [{a: null}]}}]",
			"  addons: [{name: web, values: [1]}]",
			"spec.addons[0].values",
		},
		"add-on names": {
			"  addons: [{name: web}, {name: db}]",
			"  addons: [{name: web}, {name: web}]",
			"spec.addons[1]",
		},
		"registries": {
			"  registry: {auths: [{registry: a}, {registry: b}]}",
			"  registry: {auths: [{registry: a}, {registry: a}]}",
			"spec.registry.auths[1]",
		},
		"endpoint mode": {
			"  controlPlaneEndpoint: {mode: haproxy}",
			"  controlPlaneEndpoint: {mode: nginx}",
			"spec.controlPlaneEndpoint.mode",
		},
		"version": {
			"  kubernetes: {version: v1.37.1}",
			"  kubernetes: {version: 1.37.1}",
			"spec.kubernetes.version",
		},
		"duration": {
			"  kubernetes: {certificates: {validity: 8760h}}",
			"  kubernetes: {certificates: {validity: 7}}",
			"spec.kubernetes.certificates.validity",
		},
		"approval": {
			"  approval: Manual",
			"  approval: Never",
			"spec.approval",
		},
		"files": {
			"  filesFrom: [{secretRef: {name: a}}]",
			"  filesFrom: [{secretRef: {name: a}, configMapRef: {name: b}}]",
			"spec.filesFrom[0]",
		},
		"secret": {
			"  ssh: {passwordFrom: {file: a, env: \"\"}}",
			"  ssh: {passwordFrom: {file: a, env: b}}",
			"spec.ssh.passwordFrom",
		},
		"no secret": {
			"  ssh: {passwordFrom: {env: a}}",
			"  ssh: {passwordFrom: {}}",
			"spec.ssh.passwordFrom",
		},
		"copy": {
			"  etcd: {backup: {copies: [{name: a, directory: /a}]}}",
			"  etcd: {backup: {copies: [{name: a, directory: /a, s3: {endpoint: a, bucket: a, accessKeyFrom: {env: a}, secretKeyFrom: {env: b}}}]}}",
			"spec.etcd.backup.copies[0]",
		},
		"copy without target": {
			"  etcd: {backup: {copies: [{name: a, directory: /a}, {name: b, directory: /b}]}}",
			"  etcd: {backup: {copies: [{name: a}]}}",
			"spec.etcd.backup.copies[0]",
		},
		"window": {
			`  maintenance: {windows: [{start: "22:30", duration: 4h}]}`,
			`  maintenance: {windows: [{start: "25:30", duration: 4h}]}`,
			"spec.maintenance.windows[0].start",
		},
		"window weekday": {
			`  maintenance: {windows: [{days: [Sat], start: "22:30", duration: 4h}]}`,
			`  maintenance: {windows: [{days: [Sabado], start: "22:30", duration: 4h}]}`,
			"spec.maintenance.windows[0].days[0]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.CheckObject(t, decode(t, fmt.Sprintf(cluster, tc.good)), nil); len(got) > 0 {
				t.Errorf("a good value is refused: %q", got)
			}
			if got := d.CheckObject(t, decode(t, fmt.Sprintf(cluster, tc.bad)), nil); len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("a bad value: got %q, want an error about %s", got, tc.want)
			}
		})
	}
}

// TestClusters_LimitNames has good and bad names.
func TestClusters_LimitNames(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	for name, want := range map[string]int{strings.Repeat("a", 40): 0, strings.Repeat("a", 41): 1, "prod.eu": 1, "prod-eu-1": 0} {
		object := decode(t, fmt.Sprintf(cluster, ""))
		object["metadata"].(map[string]any)["name"] = name
		if got := d.CheckObject(t, object, nil); len(got) != want {
			t.Errorf("name %s: got %q, want %d errors", name, got, want)
		}
	}
}

// created is the status of an object whose cluster exists.
const created = `
status:
  conditions: [{type: Created, status: "True", reason: Done, message: "", lastTransitionTime: "2026-11-27T00:00:00Z"}]
`

// TestClusters_ChangeBeforeCreation corrects an object whose cluster does not exist yet.
func TestClusters_ChangeBeforeCreation(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	old := decode(t, fmt.Sprintf(cluster, "  network: {podCIDR: [10.0.0.0/8]}"))
	if got := d.CheckObject(t, decode(t, fmt.Sprintf(cluster, "  network: {podCIDR: [10.244.0.0/16]}")), old); len(got) > 0 {
		t.Errorf("the correction is refused: %q", got)
	}
}

// TestClusters_KeepFixedFields changes the object of a cluster that exists.
func TestClusters_KeepFixedFields(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	for name, tc := range map[string]struct{ old, new, want string }{
		"pod range":           {"  network: {podCIDR: [10.244.0.0/16]}", "  network: {podCIDR: [10.200.0.0/16]}", "spec.network.podCIDR"},
		"default pod range":   {"", "  network: {podCIDR: [10.244.0.0/16]}", ""},
		"other pod range":     {"", "  network: {podCIDR: [10.200.0.0/16]}", "spec.network.podCIDR"},
		"service range":       {"", "  network: {serviceCIDR: [10.97.0.0/16]}", "spec.network.serviceCIDR"},
		"plugin":              {"  network: {plugin: flannel}", "  network: {plugin: none}", "spec.network.plugin"},
		"domain of services":  {"", "  kubernetes: {dnsDomain: example.com}", "spec.kubernetes.dnsDomain"},
		"etcd":                {"  etcd: {type: managed}", "", "spec.etcd.type"},
		"port":                {"  controlPlaneEndpoint: {port: 6443}", "  controlPlaneEndpoint: {port: 8443}", "spec.controlPlaneEndpoint.port"},
		"domain":              {"  controlPlaneEndpoint: {domain: k8s.example.com}", "", "spec.controlPlaneEndpoint.domain"},
		"empty pod range":     {"  network: {podCIDR: []}", "  network: {podCIDR: [10.244.0.0/16]}", ""},
		"empty domain":        {"  controlPlaneEndpoint: {domain: \"\", port: 0}", "", ""},
		"default domain":      {"", "  controlPlaneEndpoint: {domain: api.prod.internal}", ""},
		"version":             {"  kubernetes: {version: v1.36.4}", "  kubernetes: {version: v1.37.1}", ""},
		"endpoint mode":       {"  controlPlaneEndpoint: {mode: none}", "  controlPlaneEndpoint: {mode: haproxy}", ""},
		"settings and add-on": {"", "  addons: [{name: web}]\n  kubernetes: {hardening: true}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := d.CheckObject(t, decode(t, fmt.Sprintf(cluster, tc.new)+created), decode(t, fmt.Sprintf(cluster, tc.old)+created))
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want+": ")) {
				t.Errorf("got %q, want an error about %q", got, tc.want)
			}
		})
	}
}

// TestClusters_KeepRolesOfHosts changes, adds and removes hosts.
func TestClusters_KeepRolesOfHosts(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	hosts := func(list string) map[string]any {
		return decode(t, "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec: {hosts: ["+list+"]}\n")
	}
	const first = "{name: a, address: 10.0.0.1, roles: [control-plane]}"
	const second = "{name: b, address: 10.0.0.2, roles: [worker, etcd]}"
	for name, tc := range map[string]struct{ new, want string }{
		"same":     {first + ", " + second, ""},
		"order":    {second + ", " + first, ""},
		"machine":  {first + ", {name: b, address: 10.0.0.9, roles: [etcd, worker]}", ""},
		"registry": {first + ", {name: b, address: 10.0.0.2, roles: [worker, etcd, registry]}", ""},
		"added":    {first + ", " + second + ", {name: c, address: 10.0.0.3, roles: [worker]}", ""},
		"removed":  {first, ""},
		"changed":  {first + ", {name: b, address: 10.0.0.2, roles: [worker]}", "spec.hosts[1].roles"},
		"twice":    {first + ", " + first, "spec.hosts[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := d.CheckObject(t, hosts(tc.new), hosts(first+", "+second))
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], tc.want)) {
				t.Errorf("got %q, want an error about %q", got, tc.want)
			}
		})
	}
}

// TestClusters_AllowThousandHosts changes an object with 1,000 hosts: its rules cost less than
// a request may.
func TestClusters_AllowThousandHosts(t *testing.T) {
	d := definition.LoadDefinition(t, Clusters)
	var hosts strings.Builder
	for i := range 1000 {
		role := "worker"
		if i < 5 {
			role = "control-plane"
		}
		fmt.Fprintf(&hosts, "  - {name: host-%d, address: 10.0.%d.%d, roles: [%s], labels: {rack: r%d}}\n",
			i, i/250, i%250+1, role, i/20)
	}
	text := "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  hosts:\n" + hosts.String()
	if got := d.CheckObject(t, decode(t, text+"  approval: Manual\n"+created), decode(t, text+created)); len(got) > 0 {
		t.Errorf("it is refused: %q", got)
	}
}
