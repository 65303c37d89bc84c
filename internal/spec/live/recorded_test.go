package live

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestRecord_CannotRedirectLogins: a user who can write the record must not make the operator's next
// apply send files or log in to other machines.
func TestRecord_CannotRedirectLogins(t *testing.T) {
	nodes := []corev1.Node{{}}
	nodes[0].Name = "cp1"
	nodes[0].Labels = map[string]string{controlPlaneLabel: ""}
	nodes[0].Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.11"},
		{Type: corev1.NodeExternalIP, Address: "203.0.113.11"},
	}
	for _, tc := range []struct {
		name, record string
		internalIP   string
		want         func(*v1alpha1.ClusterSpec)
		says         []string
	}{
		{
			name: "registry logins",
			record: `registry: {auths: [{registry: evil.example, username: x, passwordFrom: {file: /home/op/.ssh/id_ed25519}}, {registry: ` +
				`b.example, caFile: /x}]}`,
			says: []string{`"evil.example", "b.example"`},
		},
		{
			name:   "registries without verification",
			record: `registry: {insecure: [evil.example], mirrors: {docker.io: ["http://evil.example:5000", "https://mirror.example"]}}`,
			want: func(s *v1alpha1.ClusterSpec) {
				s.Registry.Mirrors = map[string][]string{"docker.io": {"https://mirror.example"}}
			}, says: []string{`"evil.example", "http://evil.example:5000"`},
		},
		{
			name:   "the cluster's own registry",
			record: `registry: {private: {port: 5001, passwordFrom: {env: HOME}, certFile: /a, keyFile: /b, caFile: /c}}`,
			want:   func(s *v1alpha1.ClusterSpec) { s.Registry.Private = &v1alpha1.PrivateRegistry{Port: 5001} },
			says:   []string{"own registry has a password"},
		},
		{
			name: "hooks", record: `hooks: [{name: x, phase: preInstall, script: /tmp/x.sh, materials: [/home/op/.ssh/id_ed25519]}]`,
			says: []string{`the hook "x"`, `"/tmp/x.sh"`},
		},
		{
			name:   "another machine's address",
			record: `hosts: [{name: cp1, address: evil.example, internalAddress: 10.0.0.11, roles: [control-plane]}]`,
			says:   []string{`the saved SSH address "evil.example"`},
		},
		{name: "the operator's machine", record: `hosts: [{name: cp1, address: localhost, internalAddress: 10.0.0.11, roles: [control-plane]}]`},
		{
			name:   "an address of the node",
			record: `hosts: [{name: cp1, address: 203.0.113.11, internalAddress: 10.0.0.11, roles: [control-plane]}]`,
			want: func(s *v1alpha1.ClusterSpec) {
				s.Hosts[0].Address, s.Hosts[0].InternalAddress = "203.0.113.11", "10.0.0.11"
			},
		},
		{
			name: "a node that calls itself localhost", internalIP: "localhost",
			want: func(s *v1alpha1.ClusterSpec) { s.Hosts[0].Address = "" }, says: []string{`"localhost"`},
		},
		{
			name: "a node at a loopback address", internalIP: "::ffff:127.0.0.1",
			want: func(s *v1alpha1.ClusterSpec) { s.Hosts[0].Address = "" }, says: []string{`"::ffff:127.0.0.1"`},
		},
		{
			name: "text that steers a terminal", record: `hooks: [{name: "a\nb\u001b[2Jc", phase: preInstall, script: x}]`,
			says: []string{`"a\nb\x1b[2Jc"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := plainState()
			s.Nodes = slices.Clone(nodes)
			if tc.internalIP != "" {
				s.Nodes[0].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: tc.internalIP}}
			}
			s.Record = []byte("spec: {}")
			honest, err := Describe(State{Cluster: s.Cluster, Nodes: nodes, Record: s.Record}, options)
			if err != nil {
				t.Fatal(err)
			}
			s = State{Cluster: s.Cluster, Nodes: s.Nodes, Record: []byte("spec: {" + tc.record + "}")}
			d, err := Describe(s, options)
			if err != nil {
				t.Fatal(err)
			}
			want := honest.Cluster.Spec
			if strings.Contains(tc.record, "hosts:") {
				want.Hosts[0].Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane}
			} else {
				want.Hosts[0].Roles = d.Cluster.Spec.Hosts[0].Roles
			}
			if tc.want != nil {
				tc.want(&want)
			}
			if diff := cmp.Diff(want, d.Cluster.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, text := range tc.says {
				if !strings.Contains(d.Warnings.Error(), text) || !strings.Contains(string(d.Text), "# TODO: ") {
					t.Errorf("it does not say %s:\n%v\n%s", text, d.Warnings, d.Text)
				}
			}
			if strings.ContainsAny(d.Warnings.Error()+string(d.Text), "\x1b\r") {
				t.Errorf("it steers the terminal: %q", d.Text)
			}
		})
	}
}

// TestRecord_NamesNoLocalFiles: no field of a record that names a file or a secret gets into the
// file, also not one that comes later.
func TestRecord_NamesNoLocalFiles(t *testing.T) {
	var r v1alpha1.Cluster
	fillValue(reflect.ValueOf(&r.Spec).Elem())
	r.Spec.Kubernetes.Kubelet.Config = nil
	s := plainState()
	for _, n := range s.Nodes {
		r.Spec.Hosts = append(r.Spec.Hosts, v1alpha1.Host{Name: n.Name, Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane}})
	}
	var err error
	if s.Record, err = yaml.Marshal(r); err != nil {
		t.Fatal(err)
	}
	d, err := Describe(s, options)
	if err != nil {
		t.Fatal(err)
	}
	if d.Cluster.Spec.Registry.Private == nil || d.Cluster.Spec.System.Timezone == "" {
		t.Fatal("nothing of the record is in the file")
	}
	for _, path := range listLocalFields(reflect.ValueOf(d.Cluster.Spec), "spec") {
		t.Errorf("%s is taken from the record", path)
	}
}

// fillValue gives every field of a value something.
func fillValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillValue(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillValue(key)
		fillValue(value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("canary")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// listLocalFields are the fields that are set and name files or secrets of the operator's machine.
func listLocalFields(v reflect.Value, path string) (out []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = listLocalFields(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, listLocalFields(v.Index(i), path+"[]")...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			at := path + "." + f.Name
			names := strings.HasSuffix(f.Name, "From") || strings.HasSuffix(f.Name, "File") || strings.HasSuffix(f.Name, "Files") ||
				slices.Contains([]string{"Hooks", "Addons", "Insecure", "Auths", "Bundle", "BundleKeys", "SSH", "HostKey"}, f.Name)
			if names && !v.Field(i).IsZero() && !reflect.DeepEqual(v.Field(i).Interface(), v1alpha1.SSH{User: "root"}) {
				out = append(out, at)
			} else if f.IsExported() {
				out = append(out, listLocalFields(v.Field(i), at)...)
			}
		}
	}
	return out
}

func TestRemoteName_RejectsLocalNames(t *testing.T) {
	for name, want := range map[string]bool{
		"node1.example.com": true, "localhosts.example.com": true,
		"": false, "127.0.0.1": false, "10.0.0.1": false, "::1": false, "localhost": false, "LOCALHOST.": false,
		"a.localhost": false, "localhost.localdomain": false, "ip6-localhost": false, "ip6-loopback": false,
	} {
		if got := remoteName(name); got != want {
			t.Errorf("remoteName(%q) is %t, want %t", name, got, want)
		}
	}
}
