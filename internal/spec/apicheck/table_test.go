package apicheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// harmless has the other fields: the server neither reads a file nor connects because of them.
// The fields of the first group have nothing to do with files and machines.
var harmless = []struct {
	reason string
	fields string
}{
	{
		"a word, name or number", `
		Addon.kubernetes Addon.name Addon.namespace Chart.digest Chart.name Chart.version ContainerRuntime.type
		ControlPlaneEndpoint.interface Encryption.provider Etcd.type EtcdBackup.recipients EtcdCopy.name Flannel.backend
		Hook.name Host.arch Host.labels Host.name KubeVIP.announce Kubernetes.dnsDomain Kubernetes.proxyMode
		Kubernetes.version LocalReference.name MaintenanceWindow.days MaintenanceWindow.start Network.plugin Network.podCIDR
		Network.serviceCIDR PrivateRegistry.username RegistryAuth.registry RegistryAuth.username Registry.insecure
		S3Copy.bucket S3Copy.prefix S3Copy.region SSHCopy.hostKey SSHCopy.user Taint.effect Taint.key Taint.value`,
	},
	{
		"only hosts use it", `
		BGPPeer.address ComponentSettings.certSANs ComponentSettings.extraArgs ContainerRuntime.config DNS.hosts DNS.upstream
		DNSZone.names DNSZone.servers Etcd.extraArgs EtcdCopy.directory ExternalEtcd.endpoints KubeletSettings.config
		KubeletSettings.extraArgs PrivateRegistry.directory PrivateRegistry.mirrorOf PrivateRegistry.names Registry.mirrors
		System.limits System.ntpServers System.sysctls`,
	},
	{"a directory on the other machine", "SSHCopy.directory"},
	{"text for the templates of a chart, which read no files", "Addon.values"},
	{"the secret itself", "SSH.password"},
	{"a name in the time zone database, which is public", "MaintenanceWindow.timeZone System.timezone"},
	{
		"the default is in ~/.ssh: the server connects with an empty home directory", `
		SSH.user SSH.port SSH.hostKey Bastion.user Bastion.port Bastion.hostKey`,
	},
	{
		"its comment only mentions files", `
		Audit.maxAge Audit.maxBackups Audit.maxSize ClusterSpec.paused Encryption.generation Encryption.resources S3Copy.pathStyle`,
	},
}

// suspectName and suspectText match the names and descriptions of fields that can refer to a file
// or a machine.
var (
	suspectName = regexp.MustCompile(`(?i)file|path|dir|script|material|manifest|env|agent|home|socket|` +
		`url|repositor|endpoint|address|source|bundle`)
	suspectText = regexp.MustCompile(`(?i)\bfiles?\b|\bpaths?\b|director|environment|\bagent\b|~|` +
		`localhost|this machine|\bmanager\b|\bURLs?\b|download`)
)

// A fieldType is a field of the API types.
type fieldType struct {
	typ  reflect.Type
	text string // its comment
}

// isSuspect reports whether a field looks like a reference to a file or a machine.
func (f fieldType) isSuspect(name string) bool {
	_, name, _ = strings.Cut(name, ".")
	return suspectName.MatchString(name) || suspectText.MatchString(f.text)
}

// holdsText reports whether values of a type contain text that users choose: not the words of an
// enumeration, which have a type with a name.
func holdsText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsText(t.Elem())
	case reflect.String:
		return t.PkgPath() == ""
	}
	return t.Kind() == reflect.Interface
}

// listFields returns the fields of the specification that are not structures, by type and name.
func listFields(t *testing.T) map[string]fieldType {
	t.Helper()
	texts := readComments(t)
	out := map[string]fieldType{}
	var visit func(typ reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			elem := f.Type
			for elem.Kind() == reflect.Pointer || elem.Kind() == reflect.Slice {
				elem = elem.Elem()
			}
			name := typ.Name() + "." + jsonName(f)
			_, known := out[name]
			switch {
			case elem.Kind() == reflect.Struct && elem.PkgPath() == typ.PkgPath():
				visit(elem)
			case !known:
				if texts[name] == "" {
					t.Errorf("%s has no comment", name)
				}
				out[name] = fieldType{f.Type, texts[name]}
			}
		}
	}
	visit(reflect.TypeFor[v1alpha1.ClusterSpec]())
	return out
}

// readComments returns the comments of the fields of the API types, by type and name.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../../api/v1alpha1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if f.Tag != nil {
						tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
						out[spec.Name.Name+"."+jsonName(reflect.StructField{Tag: tag})] = f.Doc.Text()
					}
				}
			}
			return true
		})
	}
	return out
}

// TestRules_CoverEveryField fails for a new field of the specification with text, or that looks
// like a reference to a file or a machine, until rules or harmless has it.
func TestRules_CoverEveryField(t *testing.T) {
	fields, decided := listFields(t), map[string]string{}
	decide := func(name, as string) {
		if before, ok := decided[name]; ok {
			t.Errorf("%s has two entries: %s, and %s", name, before, as)
		}
		if _, ok := fields[name]; !ok {
			t.Errorf("%s (%s) is not a field of the specification: remove the entry", name, as)
		}
		decided[name] = as
	}
	for _, r := range rules {
		decide(r.field, "a rule")
	}
	for i, group := range harmless {
		for name := range strings.FieldsSeq(group.fields) {
			decide(name, group.reason)
			if f := fields[name]; i == 0 && f.isSuspect(name) {
				t.Errorf("%s looks like a reference to a file or a machine: add a rule, or give a better reason", name)
			}
		}
	}
	for name, f := range fields {
		if decided[name] == "" && (holdsText(f.typ) || f.isSuspect(name)) {
			t.Errorf("%s is new: add it to rules, if the command line reads something on its machine or connects from it because of the "+
				"field; otherwise add it to harmless, with the reason", name)
		}
	}
}

// fullCluster returns an object with a value in each field, and one entry in each list and mapping.
// Files have the name of their key.
func fullCluster() *v1alpha1.Cluster {
	harmlessText := map[kind]string{
		fileName: "key", fileOrURL: "key", variable: "", address: "192.0.2.1", serverURL: "https://repo.example.com/x",
		bundleSource: "registry.example.com/slipway:v1.37.1", inlineKey: "ed25519:x",
	}
	texts := map[string]string{}
	for _, r := range rules {
		texts[r.field] = harmlessText[r.kind]
	}
	c := &v1alpha1.Cluster{}
	var fill func(v reflect.Value, field string)
	fill = func(v reflect.Value, field string) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), field)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), field)
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			value := reflect.New(v.Type().Elem()).Elem()
			fill(value, field)
			v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), value)
		case reflect.Interface:
			v.Set(reflect.ValueOf("x"))
		case reflect.String:
			text, ok := texts[field]
			if !ok {
				text = "x"
			}
			v.SetString(text)
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); v.Type().PkgPath() == reflect.TypeOf(*c).PkgPath() {
					fill(v.Field(i), v.Type().Name()+"."+jsonName(f))
				}
			}
		}
	}
	fill(reflect.ValueOf(&c.Spec).Elem(), "")
	return c
}

var fullSources = []Source{{Found: true, Data: map[string][]byte{"key": []byte("content")}}}

// A textField is a place for a text in an object.
type textField struct {
	path, field string
	text        string
	set         func(text string)
}

// with calls do while the object has another text at f.
func (f textField) with(text string, do func()) {
	f.set(text)
	do()
	f.set(f.text)
}

// textFields returns all places for texts in an object, except keys of mappings.
func textFields(c *v1alpha1.Cluster) (out []textField) {
	var visit func(v reflect.Value, path, field string, set func(reflect.Value))
	visit = func(v reflect.Value, path, field string, set func(reflect.Value)) {
		switch v.Kind() {
		case reflect.Pointer:
			visit(v.Elem(), path, field, v.Elem().Set)
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i), yamlfile.IndexPath(path, i), field, v.Index(i).Set)
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				visit(v.MapIndex(key), yamlfile.KeyPath(path, key.String()), field, func(value reflect.Value) { v.SetMapIndex(key, value) })
			}
		case reflect.String, reflect.Interface:
			out = append(out, textField{path, field, fmt.Sprint(v), func(text string) { set(reflect.ValueOf(text).Convert(v.Type())) }})
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().PkgPath() == reflect.TypeOf(*c).PkgPath() {
					f, name := v.Field(i), jsonName(v.Type().Field(i))
					visit(f, path+"."+name, v.Type().Name()+"."+name, f.Set)
				}
			}
		}
	}
	visit(reflect.ValueOf(&c.Spec), "spec", "", nil)
	return out
}

// TestCheck_RefusesEachFieldWithRule writes hostile texts to each field of a complete object,
// one at a time.
func TestCheck_RefusesEachFieldWithRule(t *testing.T) {
	if found := Check(fullCluster(), fullSources); len(found) > 0 {
		t.Fatalf("an object without hostile texts is refused:\n%v", found)
	}
	file := map[string]string{
		"/etc/shadow": idAbsolutePath, "~/.ssh/id_rsa": idAbsolutePath, "../x": idDirectory, "a/b": idDirectory, "$HOME": idEnvironment,
		"missing": idFileMissing, "localhost": idFileMissing, "http://[::1]:80/x": idDirectory, "file:///etc/shadow": idDirectory, "": "",
	}
	anyText := func(id string) map[string]string {
		out := map[string]string{}
		for text := range file {
			out[text] = id
		}
		out[""] = ""
		return out
	}
	want := map[kind]map[string]string{
		0: anyText(""), fileName: file, fileOrURL: file, variable: anyText(idEnvironment), address: anyText(idLocalAddress),
		serverURL: anyText(idLocalAddress), bundleSource: anyText(IDBundleFile), inlineKey: anyText(IDBundleFile),
	}
	want[address]["missing"] = "" // a host can have this name
	kinds := map[string]kind{}
	for _, r := range rules {
		kinds[r.field] = r.kind
	}
	seen := map[string]bool{}
	c := fullCluster()
	for _, f := range textFields(c) {
		seen[f.field] = true
		for text, id := range want[kinds[f.field]] {
			if id == idDirectory && strings.HasPrefix(text, "http:") && kinds[f.field] == fileOrURL {
				id = idLocalAddress
			}
			var found diag.List
			f.with(text, func() { found = Check(c, fullSources) })
			switch {
			case id == "" && len(found) > 0 && text != "":
				t.Errorf("%s: %q is refused: %v", f.path, text, found)
			case id != "" && (len(found) != 1 || found[0].Path != f.path || found[0].ID != id || found[0].Hint == ""):
				t.Errorf("%s: %q: want one %s with this path and a hint, found %v", f.path, text, id, found)
			}
		}
	}
	for field, k := range kinds {
		if k != agentSwitch && !seen[field] {
			t.Errorf("%s has a rule, but is not in the object: the walk does not find it", field)
		}
	}
}

// TestRules_CoverFilesOfCommandLine compares the rules with the fields that the command line
// resolves relative to the cluster file.
func TestRules_CoverFilesOfCommandLine(t *testing.T) {
	c := fullCluster()
	for _, f := range textFields(c) {
		f.set("./marked")
	}
	before := c.DeepCopy()
	if err := spec.MakePathsAbsolute(c, spec.Paths{Dir: "/dir", Home: "/home"}); err != nil {
		t.Fatal(err)
	}
	resolved := map[string]bool{}
	walkFields(reflect.ValueOf(&c.Spec), "spec", func(field, path string, v reflect.Value) {
		eachText(v, path, func(path string, text reflect.Value) {
			if strings.HasPrefix(text.String(), "/dir/") {
				resolved[field] = true
			}
		})
	})
	if cmp.Diff(before, c) == "" || len(resolved) == 0 {
		t.Fatal("the command line resolves no file")
	}
	withRule := map[string]bool{}
	for _, r := range rules {
		if slices.Contains([]kind{fileName, fileOrURL, bundleSource}, r.kind) {
			withRule[r.field] = true
		}
	}
	if d := cmp.Diff(resolved, withRule); d != "" {
		t.Errorf("the fields with files (-command line +rules):\n%s", d)
	}
}

// TestCheck_OrdersProblemsAlways requires the same order in each run.
func TestCheck_OrdersProblemsAlways(t *testing.T) {
	c := fullCluster()
	for _, f := range textFields(c) {
		f.set("/etc/shadow")
	}
	var first diag.List
	for range 5 {
		found := Check(c, nil)
		if first == nil {
			first = found
		}
		if d := cmp.Diff(first, found); d != "" || len(found) < len(rules) {
			t.Fatalf("%d problems (-first +later):\n%s", len(found), d)
		}
	}
}

// TestClusterPage_NamesEachField requires each field with a rule in the documentation.
func TestClusterPage_NamesEachField(t *testing.T) {
	page, err := os.ReadFile("../../../docs/spec/v1alpha1/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### Files and logins of an object\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("the page does not have the section")
	}
	for _, r := range rules {
		_, name, _ := strings.Cut(r.field, ".")
		if !regexp.MustCompile("`([a-zA-Z0-9.]*\\.)?" + name + "`").MatchString(section) {
			t.Errorf("the section does not name %s", r.field)
		}
	}
	for limit, text := range map[int]string{MaxFiles: "1,024 files", MaxFileBytes: "4 MiB each", MaxTotalBytes: "16 MiB in total"} {
		number, _, _ := strings.Cut(strings.ReplaceAll(text, ",", ""), " ")
		n, err := strconv.Atoi(number)
		if strings.Contains(text, "MiB") {
			n <<= 20
		}
		if err != nil || n != limit || !strings.Contains(section, text) {
			t.Errorf("the section does not have the limit %d as %s", limit, text)
		}
	}
}
