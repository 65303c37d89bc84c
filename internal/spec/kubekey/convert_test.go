package kubekey

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/testutil/golden"
)

// fakeSupported stands for the release catalogue.
func fakeSupported(version string) error {
	if version != "v1.37.1" {
		return errors.New("Kubernetes " + version + " cannot be installed")
	}
	return nil
}

func testOptions(file string) Options {
	return Options{File: file, Default: "v1.37.1", Supported: fakeSupported, Scripts: "hooks"}
}

// loadConverted loads a converted file, which sets its defaults and validates it.
func loadConverted(t *testing.T, text []byte) *spec.Loaded {
	t.Helper()
	loaded, err := spec.Loader{KubernetesVersion: "v1.37.1", Supported: fakeSupported}.Load("converted", text)
	if err != nil {
		t.Fatalf("our own validation refuses what was written: %v\n%s", err, text)
	}
	return loaded
}

// TestConvert_MatchesGolden converts complete files, with and without permission to lose settings. The
// results depend on the rules of the validation.
func TestConvert_MatchesGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range files {
		for suffix, allow := range map[string]bool{"strict": false, "allow-loss": true} {
			t.Run(filepath.Base(name)+" "+suffix, func(t *testing.T) {
				data, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				o := testOptions(filepath.Base(name))
				o.AllowLoss = allow
				var got string
				switch r, err := Convert(data, o); {
				case err != nil:
					got = err.Error() + "\n"
				default:
					loadConverted(t, r.Text)
					got = r.Warnings.Error() + "\n---\n" + string(r.Text) + scriptsOf(r)
				}
				golden.Check(t, strings.TrimSuffix(name, ".yaml")+"."+suffix+".golden", got)
				for _, password := range []string{"hunter2", "P@ss#w0rd!21", "Registry12345", "x:y/z", "a$b", "Demo@2024!", "123456"} {
					if strings.Contains(got, password) {
						t.Error("a secret is printed")
					}
				}
				if again, err := Convert(data, o); err == nil && !strings.HasSuffix(got, "---\n"+string(again.Text)+scriptsOf(again)) {
					t.Error("a second run gives another file")
				}
			})
		}
	}
}

func scriptsOf(r *Result) (out string) {
	for _, script := range sortedKeys(r.Scripts) {
		out += "--- " + script + "\n" + string(r.Scripts[script])
	}
	return out
}

const base = `
hosts:
- {name: a, address: 10.0.0.1}
- {name: b, address: 10.0.0.2}
roleGroups: {etcd: [a], control-plane: [a], worker: [b]}
kubernetes: {version: v1.37.1, nodelocaldns: false, containerManager: containerd}
etcd: {type: kubeadm}
network: {plugin: flannel}
`

// mergeIntoBase lays a fragment of a spec over the base.
func mergeIntoBase(t *testing.T, fragment string) []byte {
	t.Helper()
	var under, over map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(base), &under), yaml.Unmarshal([]byte(fragment), &over)); err != nil {
		t.Fatal(err)
	}
	mergeMaps(under, over)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "prod"}, "spec": under,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mergeMaps(under, over map[string]any) {
	for key, value := range over {
		a, isA := under[key].(map[string]any)
		b, isB := value.(map[string]any)
		if isA && isB && key != "roleGroups" {
			mergeMaps(a, b)
			continue
		}
		under[key] = value
	}
}

// describeMissing returns the place where got lacks a value of want; additional keys in
// mappings are allowed.
func describeMissing(want, got any, path string) string {
	w, isMap := want.(map[string]any)
	g, _ := got.(map[string]any)
	if !isMap {
		if d := cmp.Diff(want, got); d != "" {
			return path + " (-want +got):\n" + d
		}
		return ""
	}
	for _, key := range sortedKeys(w) {
		if problem := describeMissing(w[key], g[key], path+"."+key); problem != "" {
			return problem
		}
	}
	return ""
}

// Each field that is mapped: what it becomes, or how it is refused.
func TestConvert_MapsEachField(t *testing.T) {
	var covered []string
	for _, tc := range mappedCases {
		covered = append(covered, strings.Fields(tc.field)...)
		t.Run(tc.field+": "+tc.reason, func(t *testing.T) {
			data := mergeIntoBase(t, tc.in)
			if tc.metadata != "" {
				data = []byte(strings.Replace(string(data), "metadata:\n  name: prod", "metadata: "+tc.metadata, 1))
			}
			o := testOptions("kk.yaml")
			o.AllowLoss = tc.allow
			r, err := Convert(data, o)
			var said diag.List
			if err != nil {
				if !errors.As(err, &said) {
					t.Fatal(err)
				}
			} else {
				said = r.Warnings
			}
			if tc.says != "" && !slices.ContainsFunc(said, func(d diag.Diagnostic) bool {
				return tc.says == d.Path+" "+d.ID+" "+string(d.Severity) && d.Line > 0
			}) {
				t.Errorf("want %q; it says:\n%v", tc.says, said)
			}
			if tc.want == "" {
				if err == nil {
					t.Errorf("it is converted:\n%s", r.Text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			loadConverted(t, r.Text)
			var want, got map[string]any
			if err := errors.Join(yaml.Unmarshal([]byte(tc.want), &want), yaml.Unmarshal(r.Text, &got)); err != nil {
				t.Fatal(err)
			}
			if problem := describeMissing(want, any(got), ""); problem != "" {
				t.Errorf("%s\n%s", problem, r.Text)
			}
			if strings.Contains(string(r.Text), "hunter2") {
				t.Error("a secret is in the file")
			}
			for path, content := range tc.scripts {
				if d := cmp.Diff(content, string(r.Scripts[path])); d != "" {
					t.Errorf("%s (-want +got):\n%s", path, d)
				}
			}
		})
	}
	for name, f := range fields {
		if f.fate == mapped && !slices.Contains(covered, name) {
			t.Errorf("%s has no case", name)
		}
	}
}

func TestConvert_RefusesOtherFiles(t *testing.T) {
	for _, tc := range []struct{ reason, file, want string }{
		{"nothing", "", "kk.yaml: the file is empty [empty-file]"},
		{"no YAML", "a: [", "kk.yaml:1:1: the file is not valid YAML"},
		{"ours", "apiVersion: slipway.dev/v1alpha1\nkind: Cluster\n", "use the file as it is: it is already a Slipway cluster file"},
		{"an inventory of KubeKey 4", "apiVersion: kubekey.kubesphere.io/v1\nkind: Inventory\n", "convert only files of KubeKey 3"},
		{"a list", "[1]", "the file has no KubeKey cluster"},
		{
			"a value of another type", string(mergeIntoBase(t, "kubernetes: {maxPods: many}")),
			"spec.kubernetes.maxPods: found text (\"many\"), expected a whole number",
		},
		{
			"a password that is a number is not printed",
			string(mergeIntoBase(t, "hosts: [{name: a, address: 10.0.0.1, password: 123456}]")),
			"spec.hosts[0].password: found a number, expected text",
		},
		{"a host that is not there", string(mergeIntoBase(t, "roleGroups: {control-plane: [aa]}")), "there is no host \"aa\" [unknown-host]"},
		{
			"a range that leaves the hosts", string(mergeIntoBase(t, "roleGroups: {control-plane: [a], worker: ['b[1:900000000]']}")),
			"there is no host \"b1\" [unknown-host]",
		},
		{
			"a range that is none", string(mergeIntoBase(t, "roleGroups: {control-plane: ['a[x:y]']}")),
			"is not a range of names [invalid-selector]",
		},
		{
			"a range that ends before it begins", string(mergeIntoBase(t, "roleGroups: {control-plane: ['a[3:1]']}")),
			"its end is before its start [invalid-selector]",
		},
		{"no control plane", string(mergeIntoBase(t, "roleGroups: {worker: [a]}")), "no host has the role control-plane [no-control-plane]"},
		{"an unknown type of etcd", string(mergeIntoBase(t, "etcd: {type: kubeadmin}")), "did you mean kubeadm?"},
		{"an unknown load balancer", string(mergeIntoBase(t, "controlPlaneEndpoint: {internalLoadbalancer: nginx}")), "use haproxy or kube-vip"},
		{
			"an address beside haproxy",
			string(mergeIntoBase(t, "controlPlaneEndpoint: {internalLoadbalancer: haproxy, address: 10.0.0.9}")),
			"KubeKey rejects this combination as well",
		},
		{
			"a line that is none of a hosts file", string(mergeIntoBase(t, "dns: {dnsEtcHosts: \"git.example.com 10.0.0.9\"}")),
			"is not a line of a hosts file",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r, err := Convert([]byte(tc.file), testOptions("kk.yaml"))
			var list diag.List
			if !errors.As(err, &list) || r != nil {
				t.Fatalf("not refused with a diag.List: %v", err)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "123456") {
				t.Errorf("want %q in\n%v", tc.want, err)
			}
		})
	}
}

// Two passwords are in two variables, whatever is in the names of their hosts.
func TestConvert_NamesPasswordsApart(t *testing.T) {
	r, err := Convert(mergeIntoBase(t, `
hosts:
- {name: db-1, address: 10.0.0.1, password: one}
- {name: db.1, address: 10.0.0.2, password: two}
roleGroups: {control-plane: [db-1], worker: [db.1]}
registry: {auths: {r-1.example.com: {username: a, password: three}, r.1.example.com: {username: a, password: four}}}`),
		testOptions("kk.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := loadConverted(t, r.Text).Cluster.Spec
	got := []string{
		c.Hosts[0].SSH.PasswordFrom.Env, c.Hosts[1].SSH.PasswordFrom.Env,
		c.Registry.Auths[0].PasswordFrom.Env, c.Registry.Auths[1].PasswordFrom.Env,
	}
	want := []string{"SSH_PASSWORD_DB_1", "SSH_PASSWORD_DB_1_2", "REGISTRY_PASSWORD_R_1_EXAMPLE_COM", "REGISTRY_PASSWORD_R_1_EXAMPLE_COM_2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A version that is asked for takes the place of the file's.
func TestConvert_PrefersRequestedVersion(t *testing.T) {
	o := testOptions("kk.yaml")
	o.Kubernetes = "v1.37.1"
	r, err := Convert(mergeIntoBase(t, "kubernetes: {version: v1.23.17}"), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := loadConverted(t, r.Text).Cluster.Spec.Kubernetes.Version; got != "v1.37.1" {
		t.Errorf("version is %s", got)
	}
}

// FuzzConvert wants no panic, diagnostics with a place, no secret in what is
// written, and files that our own validation takes.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no files", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
		f.Add(data, false)
	}
	f.Add(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nspec: {roleGroups: {worker: ['a[1:9]']}, hosts: [{name: a1}, {name: a1}]}",
		apiVersion, kind), true)
	f.Fuzz(func(t *testing.T, data []byte, allow bool) {
		o := testOptions("f")
		o.AllowLoss = allow
		r, err := Convert(data, o)
		if err != nil {
			var list diag.List
			if !errors.As(err, &list) || len(list.Errors()) == 0 {
				t.Fatalf("an error that is no diag.List of errors: %v", err)
			}
			for _, d := range list {
				if d.ID == "" || d.Message == "" || d.Line < 0 || d.Column < 0 {
					t.Fatalf("an unfinished diagnostic: %+v", d)
				}
			}
			return
		}
		loadConverted(t, r.Text)
	})
}
