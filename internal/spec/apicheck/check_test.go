package apicheck

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
)

// decodeSpec returns an object with a login and one host, changed by a merge of text.
func decodeSpec(t *testing.T, text string) *v1alpha1.Cluster {
	t.Helper()
	fields := map[string]any{
		"filesFrom": []any{map[string]any{"secretRef": map[string]any{"name": "prod-ssh"}}},
		"ssh":       map[string]any{"privateKeyFile": "id_ed25519"},
		"hosts":     []any{map[string]any{"name": "cp1", "address": "10.0.0.11", "roles": []any{"control-plane"}}},
	}
	var more map[string]any
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, more)
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": spec.Kind, "metadata": map[string]any{"name": "prod"}, "spec": fields,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return c
}

// withFiles returns a source with these keys, and the key of the login.
func withFiles(names ...string) []Source {
	data := map[string][]byte{"id_ed25519": []byte("content")}
	for _, name := range names {
		data[name] = []byte("content of " + name)
	}
	return []Source{{Found: true, Data: data}}
}

// summaries returns the place and the id of each problem.
func summaries(list diag.List) (out []string) {
	for _, d := range list {
		out = append(out, d.Path+" "+d.ID)
	}
	return out
}

// checkRefusals runs cases of a specification and its problems.
func checkRefusals(t *testing.T, sources []Source, cases []refusal) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			found := Check(decodeSpec(t, tc.spec), sources)
			if d := cmp.Diff(tc.want, summaries(found)); d != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, d, found)
			}
			for _, d := range found {
				if d.Message == "" || d.Hint == "" || d.Severity != diag.Error {
					t.Errorf("an unfinished diagnostic: %+v", d)
				}
			}
		})
	}
}

type refusal struct {
	name, reason string
	spec         string
	want         []string
}

// wholeSpec is an accepted specification with all kinds of references; wholeFiles has its files.
const wholeSpec = `
bundle: oci://registry.example.com:5000/slipway:v1@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
bundleKeys: ["ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]
ssh: {user: admin, privateKeyFile: id_ed25519, passphraseFrom: {file: passphrase}, sudoPasswordFrom: {file: sudo}, agent: false}
hosts:
- {name: cp1, address: 10.0.0.11, roles: [control-plane], ssh: {bastion: {address: b.example.com, passwordFrom: {file: sudo}}}}
- {name: w1, address: w1.example.com., roles: [worker], ssh: {passwordFrom: {file: sudo}}}
- {name: w2, address: "2001:db8::12", internalAddress: 10.0.0.12, roles: [worker]}
kubernetes: {audit: {policyFile: audit.yaml}, kubelet: {config: {a: ~/x}, extraArgs: {b: /etc/x}}}
etcd:
  backup:
    copies:
    - {name: disk, directory: /mnt/backups}
    - {name: s3, s3: {endpoint: "https://s3.example.com", bucket: b, caFile: ca.crt, accessKeyFrom: {file: a}, secretKeyFrom: {file: b}}}
registry: {auths: [{registry: registry.example.com, caFile: ca.crt}], mirrors: {docker.io: ["http://127.0.0.1:5000"]}}
containerRuntime: {config: "root = '/etc/$HOME'"}
hooks: [{name: h, phase: preInstall, script: h.sh, materials: [m.tar, .hidden, -x]}]
addons:
- {name: a, manifests: [a.yaml, "https://example.com/a/../b.yaml@sha256:0a"]}
- {name: b, chart: {path: b-1.0.0.tgz}, valuesFiles: [v.yaml], values: {path: /etc/passwd, home: "~"}}
- {name: c, chart: {repository: "oci://registry.example.com/charts", name: c, version: 1.2.3}}
`

func wholeFiles() []string {
	return []string{
		"passphrase", "sudo", "audit.yaml", "ca.crt", "a", "b", "h.sh", "m.tar", ".hidden", "-x", "a.yaml", "b-1.0.0.tgz", "v.yaml",
	}
}

func TestCheck_AcceptsWholeObject(t *testing.T) {
	c := decodeSpec(t, wholeSpec)
	sources := withFiles(wholeFiles()...)
	if found := Check(c, sources); len(found) > 0 {
		t.Error(found)
	}
	if found := CheckObject(c); len(found) > 0 {
		t.Error(found)
	}
}

func TestCheck_RefusesNamesThatAreNotKeys(t *testing.T) {
	script := func(name string) string { return `hooks: [{name: h, phase: preInstall, script: ` + name + `}]` }
	const at = "spec.hooks[0].script "
	checkRefusals(t, withFiles("a.sh"), []refusal{
		{"key", "a key of a source is a file of the object", script("a.sh"), nil},
		{"absolute", "it is a file of the server", script("/root/a.sh"), []string{at + idAbsolutePath}},
		{"absolute and outside", "the first cause is reported", script("/a/../b"), []string{at + idAbsolutePath}},
		{"home", "the home directory is the server's", script(`"~/a.sh"`), []string{at + idAbsolutePath}},
		{"home of a user", "shells expand it", script(`"~root/a.sh"`), []string{at + idAbsolutePath}},
		{"only home", "it is the home directory itself", script(`"~"`), []string{at + idAbsolutePath}},
		{"variable", "shells expand it", script("$HOME/a.sh"), []string{at + idEnvironment}},
		{"variable in braces", "shells expand it", script(`"${SCRIPT}"`), []string{at + idEnvironment}},
		{"parent", "it leaves the directory of the files", script("../a.sh"), []string{at + idDirectory}},
		{"parent in the middle", "it leaves the directory of the files", script("x/../../a.sh"), []string{at + idDirectory}},
		{"only parent", "keys cannot be '..'", script(`".."`), []string{at + idFileName}},
		{"link of a volume", "kubelets keep the data of volumes behind ..data", script("..data"), []string{at + idFileName}},
		{"this directory", "one file has one name", script("./a.sh"), []string{at + idDirectory}},
		{"directory", "a key has no directory", script("files/a.sh"), []string{at + idDirectory}},
		{"only directory", "keys cannot be '.'", script("."), []string{at + idFileName}},
		{"directory of Windows", "a key has no backslash", script(`'..\a.sh'`), []string{at + idDirectory}},
		{"URL of a file", "it is a path", script(`"file:///a.sh"`), []string{at + idDirectory}},
		{"space", "it is not a key", script(`"a b.sh"`), []string{at + idFileName}},
		{"unicode", "it is not a key", script("ä.sh"), []string{at + idFileName}},
		{"null byte", "it is not a key", script(`"a.sh\0"`), []string{at + idFileName}},
		{"long", "a key has at most 253 characters", script(strings.Repeat("a", 254)), []string{at + idFileName}},
		{"other case", "keys are compared exactly", script("A.sh"), []string{at + idFileMissing}},
		{"missing", "no source has the key", script("b.sh"), []string{at + idFileMissing}},
	})
}

func TestCheck_RefusesEachReferenceToServer(t *testing.T) {
	checkRefusals(t, withFiles("key"), []refusal{
		{
			"variable", "the environment is the server's", `ssh: {passwordFrom: {env: PASSWORD}}`,
			[]string{"spec.ssh.passwordFrom.env " + idEnvironment},
		},
		{
			"variable of a copy", "it is the same type at another place",
			`etcd: {backup: {copies: [{name: a, ssh: {address: 10.0.0.9, user: a, directory: /a, hostKey: a, privateKeyFrom: {env: KEY}}}]}}`,
			[]string{"spec.etcd.backup.copies[0].ssh.privateKeyFrom.env " + idEnvironment},
		},
		{"agent", "the agent is the server's", `ssh: {agent: true}`, []string{"spec.ssh.agent " + IDAgent}},
		{
			"agent of a host", "a host has its own settings",
			`hosts: [{name: a, address: 10.0.0.1, roles: [worker], ssh: {agent: true}}, {name: b, address: 10.0.0.2, roles: [worker]}]`,
			[]string{"spec.hosts[0].ssh.agent " + IDAgent},
		},
		{"no login", "the default keys are the server's", `ssh: {user: root}`, []string{"spec.ssh " + IDNoLogin}},
		{
			"no login of a host", "only this host needs a change",
			`{ssh: {}, hosts: [{name: a, address: 10.0.0.1, roles: [worker]}, {name: b, address: b, roles: [worker], ssh: {privateKeyFile: key}}]}`,
			[]string{"spec.hosts[0].ssh " + IDNoLogin},
		},
		{"no login without agent", "the default keys remain", `ssh: {agent: false}`, []string{"spec.ssh " + IDNoLogin}},
		{"inline password", "the object has it: Validate warns", `ssh: {password: hunter2}`, nil},
		{
			"no login of a bastion", "its default is the agent",
			`ssh: {privateKeyFile: key, bastion: {address: b.example.com}}`,
			[]string{"spec.ssh.bastion " + IDNoLogin},
		},
		{
			"manifest", "it is a file of the server", `addons: [{name: a, manifests: [key, /etc/a.yaml]}]`,
			[]string{"spec.addons[0].manifests[1] " + idAbsolutePath},
		},
		{
			"manifest directory", "a key is not a directory", `addons: [{name: a, manifests: [./a/]}]`,
			[]string{"spec.addons[0].manifests[0] " + idDirectory},
		},
		{
			"URL in capitals", "the command line reads it as a path", `addons: [{name: a, manifests: ["HTTPS://example.com/a"]}]`,
			[]string{"spec.addons[0].manifests[0] " + idDirectory},
		},
		{
			"chart", "it is a directory of the server", `addons: [{name: a, chart: {path: ../chart}}]`,
			[]string{"spec.addons[0].chart.path " + idDirectory},
		},
		{
			"chart repository without URL", "it can be a directory of the server", `addons: [{name: a, chart: {repository: charts}}]`,
			[]string{"spec.addons[0].chart.repository " + idLocalAddress},
		},
		{
			"chart repository of files", "it is a directory of the server", `addons: [{name: a, chart: {repository: "file:///charts"}}]`,
			[]string{"spec.addons[0].chart.repository " + idLocalAddress},
		},
		{
			"bundle key", "the command line reads a file with this name", `bundleKeys: [/etc/shadow]`,
			[]string{"spec.bundleKeys[0] " + IDBundleFile},
		},
	})
}

func TestCheck_RefusesBundlesOfServer(t *testing.T) {
	const at = "spec.bundle "
	for _, tc := range []struct{ name, reason, bundle, want string }{
		{"none", "the server has the bundle of the version", "", ""},
		{"tag", "it is a reference in a registry", "registry.example.com/slipway:v1.37.1", ""},
		{"port", "a port makes it a registry", "registry:5000/slipway:v1.37.1", ""},
		{"scheme", "a scheme makes it a registry", "oci://registry/slipway:v1.37.1", ""},
		{"address", "a registry can have an address", "[2001:db8::1]:5000/slipway:v1.37.1", ""},
		{"path", "it is a file of the server", "/var/lib/bundle", at + IDBundleFile},
		{"relative path", "it is a file of the server", "./bundle", at + IDBundleFile},
		{"home", "it is a file of the server", "~/bundle", at + IDBundleFile},
		{"word", "a file of the server can have this name", "bundle", at + IDBundleFile},
		{"archive", "a file of the server can have this name", "bundle.tar.zst", at + IDBundleFile},
		{"directory", "it has no registry", "bundles/prod:v1", at + IDBundleFile},
		{"outside", "a reference has no '..'", "registry.example.com/../../etc/bundle", at + IDBundleFile},
		{"URL", "it is not a reference", "https://registry.example.com/slipway:v1", at + IDBundleFile},
		{"scheme of files", "it is not a reference", "file:///bundle", at + IDBundleFile},
		{"user", "it is not a reference", "user:hunter2@registry.example.com/slipway:v1", at + IDBundleFile},
		{"this machine", "the registry is the server's", "localhost:5000/slipway:v1", at + idLocalAddress},
		{"this machine without port", "the registry is the server's", "localhost/slipway:v1", at + idLocalAddress},
		{"loopback", "the registry is the server's", "oci://127.0.0.1:5000/slipway:v1", at + idLocalAddress},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := decodeSpec(t, "")
			c.Spec.Bundle = tc.bundle
			found := Check(c, withFiles())
			if got := strings.Join(summaries(found), "\n"); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
			if strings.Contains(found.Error(), "hunter2") {
				t.Error("a password is printed")
			}
		})
	}
}

func TestCheck_RefusesAddressesOfServer(t *testing.T) {
	for _, tc := range []struct {
		name, reason, host string
		refused            bool
	}{
		{"address", "another machine has it", "10.0.0.1", false},
		{"IPv6", "another machine has it", "2001:db8::1", false},
		{"name", "another machine can have it", "w1.example.com", false},
		{"one word", "search domains complete it", "w1", false},
		{"name with digits", "the last part has a letter", "1.2.3.x4", false},
		{"word in a name", "only the first and the last word count", "a.localhost.example.com", false},
		{"localhost", "the command line changes this machine without SSH", "localhost", true},
		{"capitals", "names have no case", "LocalHost", true},
		{"dot", "it is the same name", "localhost.", true},
		{"name below localhost", "resolvers return loopback (RFC 6761)", "a.localhost", true},
		{"long name of localhost", "hosts files have it", "localhost.localdomain", true},
		{"IPv6 name", "hosts files have it", "ip6-loopback", true},
		{"loopback", "it is the server", "127.0.0.1", true},
		{"other loopback", "all of 127.0.0.0/8 is the server", "127.8.9.10", true},
		{"IPv6 loopback", "it is the server", "::1", true},
		{"long loopback", "it is the same address", "0:0:0:0:0:0:0:1", true},
		{"IPv4 in IPv6", "it is the same address", "::ffff:127.0.0.1", true},
		{"unspecified", "Linux connects to the server", "0.0.0.0", true},
		{"unspecified IPv4 in IPv6", "it is the same address", "::ffff:0.0.0.0", true},
		{"unspecified IPv6", "Linux connects to the server", "::", true},
		{"short address", "resolvers of the C library read 127.0.0.1", "127.1", true},
		{"number", "resolvers of the C library read 127.0.0.1", "2130706433", true},
		{"hexadecimal", "resolvers of the C library read 127.0.0.1", "0x7f.0x1", true},
		{"leading zeros", "some programs read octal numbers", "0177.0.0.01", true},
		{"metadata", "clouds serve credentials of the server there", "169.254.169.254", true},
		{"link-local", "it depends on the network link", "fe80::1", true},
		{"zone", "the interface is the server's", "2001:db8::1%eth0", true},
		{"wide letters", "HTTP clients convert them to ASCII", "ｌocalhost", true},
		{"wide digits", "HTTP clients convert them to ASCII", "１２７.0.0.1", true},
		{"port", "it is not a host", "127.0.0.1:22", true},
		{"space", "it is not a host", " localhost", true},
		{"socket", "it is not a host", "unix:/run/x", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := decodeSpec(t, "")
			c.Spec.Hosts[0].Address = tc.host
			found := Check(c, withFiles())
			if (len(found) > 0) != tc.refused || tc.refused && (found[0].ID != idLocalAddress || found[0].Path != "spec.hosts[0].address") {
				t.Errorf("%s: %v", tc.reason, found)
			}
			host := tc.host
			if strings.Contains(host, ":") {
				host = "[" + strings.ReplaceAll(host, "%", "%25") + "]"
			}
			for _, url := range []string{"https://" + host + "/x", "http://" + host + ":80/x", "https://" + host + "/x@sha256:0a"} {
				c := decodeSpec(t, "")
				c.Spec.Addons = []v1alpha1.Addon{{Name: "a", Manifests: []string{url}}}
				if found := Check(c, withFiles()); (len(found) > 0) != tc.refused || tc.refused && found[0].ID != idLocalAddress {
					t.Errorf("%s: %s: %v", tc.reason, url, found)
				}
			}
		})
	}
}

// newKey returns a private key of OpenSSH, with a passphrase or without.
func newKey(t *testing.T, passphrase string) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

func TestCheck_RefusesKeysThatNeedAgent(t *testing.T) {
	sources := withFiles("passphrase")
	sources[0].Data["open"], sources[0].Data["locked"] = newKey(t, ""), newKey(t, "secret")
	host := func(name, ssh string) string {
		return "{name: " + name + ", address: 10.0.0.1, roles: [worker], ssh: {" + ssh + "}}"
	}
	const passphrase = "passphraseFrom: {file: passphrase}"
	checkRefusals(t, sources, []refusal{
		{"open", "it needs no passphrase", "ssh: {privateKeyFile: open}", nil},
		{"locked", "only an agent could use it", "ssh: {privateKeyFile: locked}", []string{"spec.ssh.privateKeyFile " + IDAgent}},
		{"passphrase", "it is in the files", "ssh: {privateKeyFile: locked, " + passphrase + "}", nil},
		{
			"passphrase of hosts", "they complete the default", "{ssh: {privateKeyFile: locked}, hosts: [" + host("a", passphrase) + "]}", nil,
		},
		{
			"key of a host", "the default passphrase belongs to the default key",
			"{ssh: {privateKeyFile: locked, " + passphrase + "}, hosts: [" + host("a", "privateKeyFile: locked") + ", " + host("b", "") + "]}",
			[]string{"spec.hosts[0].ssh.privateKeyFile " + IDAgent},
		},
		{
			"default key of many hosts", "it is one mistake",
			"{ssh: {privateKeyFile: locked}, hosts: [" + host("a", "") + ", " + host("b", "") + "]}",
			[]string{"spec.ssh.privateKeyFile " + IDAgent},
		},
		{
			"bastion", "it has its own key", "ssh: {privateKeyFile: open, bastion: {address: b.example.com, privateKeyFile: locked}}",
			[]string{"spec.ssh.bastion.privateKeyFile " + IDAgent},
		},
	})
}

func TestCheck_RefusesSources(t *testing.T) {
	many := map[string][]byte{"id_ed25519": nil}
	for i := range MaxFiles {
		many["f"+strings.Repeat("x", i%200)+string(rune('a'+i/200))] = nil
	}
	for _, tc := range []struct {
		name, reason string
		spec         string
		sources      []Source
		want         []string
	}{
		{"present", "both exist", "", withFiles(), nil},
		{"empty file", "the file exists", "", []Source{{Found: true, Data: map[string][]byte{"id_ed25519": nil}}}, nil},
		{"missing", "names of files are unknown then", "", []Source{{}}, []string{"spec.filesFrom[0] " + idSourceMissing}},
		{"no answer", "a source without an answer is missing", "", nil, []string{"spec.filesFrom[0] " + idSourceMissing}},
		{"without data", "the object exists", "", []Source{{Found: true}}, []string{"spec.ssh.privateKeyFile " + idFileMissing}},
		{"no source", "nothing has the key", "filesFrom: []", nil, []string{"spec.ssh.privateKeyFile " + idFileMissing}},
		{
			"more answers than sources", "only named sources count", "filesFrom: []", withFiles(),
			[]string{"spec.ssh.privateKeyFile " + idFileMissing},
		},
		{
			"Secret of Slipway", "it has the kubeconfig of another cluster", "filesFrom: [{secretRef: {name: slipway.lab.kubeconfig}}]", withFiles(),
			[]string{"spec.filesFrom[0] " + idSourceReserved},
		},
		{
			"plan", "it has the files of hosts", "filesFrom: [{secretRef: {name: slipway-plan.x}}]", withFiles(),
			[]string{"spec.filesFrom[0] " + idSourceReserved},
		},
		{"ConfigMap", "Slipway has none", "filesFrom: [{configMapRef: {name: slipway.x}}]", withFiles(), nil},
		{
			"source without a name", "it is not an object", "filesFrom: [{}]", []Source{{}}, []string{"spec.filesFrom[0] " + idSourceMissing},
		},
		{
			"second source", "either can have the file", "filesFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]",
			[]Source{{Found: true, Data: map[string][]byte{"x": nil}}, withFiles()[0]},
			nil,
		},
		{
			"key", "it would be written outside of the directory", "",
			[]Source{{Found: true, Data: map[string][]byte{"id_ed25519": nil, "../x": nil, "a/b": nil}}},
			[]string{"spec.filesFrom[0] " + idFileKey, "spec.filesFrom[0] " + idFileKey},
		},
		{
			"largest file", "it is within the limit", "",
			[]Source{{Found: true, Data: map[string][]byte{"id_ed25519": make([]byte, MaxFileBytes)}}},
			nil,
		},
		{
			"large file", "it is above the limit", "",
			[]Source{{Found: true, Data: map[string][]byte{"id_ed25519": make([]byte, MaxFileBytes+1)}}},
			[]string{"spec.filesFrom[0] " + idFilesTooLarge},
		},
		{
			"large in total", "hidden files count, because the server reads them",
			"filesFrom: [{secretRef: {name: a}}, {secretRef: {name: b}}, {secretRef: {name: c}}, {secretRef: {name: d}}, {secretRef: {name: e}}]",
			repeatSource(5, map[string][]byte{"id_ed25519": make([]byte, MaxFileBytes)}),
			[]string{"spec.filesFrom " + idFilesTooLarge},
		},
		{"many files", "one is above the limit", "", []Source{{Found: true, Data: many}}, []string{"spec.filesFrom " + idFilesTooLarge}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := Check(decodeSpec(t, tc.spec), tc.sources)
			if d := cmp.Diff(tc.want, summaries(found)); d != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, d, found)
			}
		})
	}
}

func repeatSource(n int, data map[string][]byte) (out []Source) {
	for range n {
		out = append(out, Source{Found: true, Data: data})
	}
	return out
}

func TestCheck_NamesSourcesOfMissingFile(t *testing.T) {
	c := decodeSpec(t, "{ssh: {privateKeyFile: other}, filesFrom: [{secretRef: {name: prod-ssh}}, {configMapRef: {name: prod-files}}]}")
	found := Check(c, append(withFiles("otter"), withFiles()...))
	if len(found) != 1 || !strings.Contains(found[0].Message, "Secret prod-ssh, ConfigMap prod-files") {
		t.Fatalf("the sources are not named: %v", found)
	}
	if strings.Contains(found.Error(), "otter") {
		t.Error("a key of a Secret is printed, which the user may not be allowed to read")
	}
	for i := range 20 {
		c.Spec.FilesFrom = append(c.Spec.FilesFrom, v1alpha1.FilesSource{SecretRef: &v1alpha1.LocalReference{Name: "s" + strings.Repeat("x", i)}})
	}
	k := &checker{cluster: c}
	if list := k.listSources(); !strings.HasSuffix(list, ", 18 more") {
		t.Errorf("a long list: %s", list)
	}
}

// TestCheckObject_NeedsNoFiles accepts names of files before their Secrets exist.
func TestCheckObject_NeedsNoFiles(t *testing.T) {
	for _, tc := range []struct {
		name, reason, spec string
		want               []string
	}{
		{"unknown file", "a source can have it", "", nil},
		{"no source", "nothing can have it", "filesFrom: []", []string{"spec.ssh.privateKeyFile " + idFileMissing}},
		{"path", "no source can have it", "ssh: {privateKeyFile: /etc/key}", []string{"spec.ssh.privateKeyFile " + idAbsolutePath}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, summaries(CheckObject(decodeSpec(t, tc.spec)))); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestMergeFiles_PrefersLaterSources(t *testing.T) {
	got := MergeFiles([]Source{
		{Found: true, Data: map[string][]byte{"a": []byte("1"), "b": []byte("1")}},
		{},
		{Found: true, Data: map[string][]byte{"b": []byte("2")}},
	})
	if d := cmp.Diff(map[string][]byte{"a": []byte("1"), "b": []byte("2")}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCheck_LimitsProblems(t *testing.T) {
	c := decodeSpec(t, "")
	c.Spec.Addons = []v1alpha1.Addon{{Name: "a", Manifests: slices.Repeat([]string{"/"}, 2*maxProblems)}}
	if found := Check(c, withFiles()); len(found) != maxProblems {
		t.Errorf("%d problems", len(found))
	}
}

// TestCheck_HidesContent requires that a key in the place of its file name is not printed.
func TestCheck_HidesContent(t *testing.T) {
	c := decodeSpec(t, "")
	c.Spec.SSH.PrivateKeyFile = string(newKey(t, ""))
	c.Spec.BundleKeys = []string{"AGE-SECRET-KEY-hunter2"}
	found := Check(c, withFiles())
	if len(found) != 2 || strings.Contains(found.Error(), "BEGIN") || strings.Contains(found.Error(), "hunter2") {
		t.Errorf("%v", found)
	}
}
