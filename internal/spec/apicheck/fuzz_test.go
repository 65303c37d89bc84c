package apicheck

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// FuzzCheck wants no panic, and no reference to the server in an accepted object. The object is
// decoded, or a complete one without any text, and gets one more text at some field. The walker
// looks for references in the JSON of the object, without the table and the types.
func FuzzCheck(f *testing.F) {
	files, err := filepath.Glob("../testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no files", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "id_ed25519", uint(0), "")
	}
	object := "spec:\n" + strings.ReplaceAll(wholeSpec, "\n", "\n  ") + "\n  filesFrom: [{secretRef: {name: a}}]\n"
	f.Add([]byte(object), "id_ed25519\n"+strings.Join(wholeFiles(), "\n"), uint(0), "")
	for i := range textFields(fullCluster()) {
		f.Add([]byte{}, "key", uint(i), hostileTexts()[i%len(hostileTexts())])
	}
	f.Fuzz(func(t *testing.T, object []byte, keys string, at uint, text string) {
		c := &v1alpha1.Cluster{}
		if yaml.Unmarshal(object, c) != nil {
			return
		}
		if len(object) == 0 {
			c = fullCluster()
		}
		if fields := textFields(c); text != "" && len(fields) > 0 {
			fields[at%uint(len(fields))].set(text)
		}
		data := map[string][]byte{}
		for key := range strings.SplitSeq(keys, "\n") {
			data[key] = []byte("content")
		}
		sources := make([]Source, len(c.Spec.FilesFrom))
		for i := range sources {
			sources[i] = Source{Found: true, Data: data}
		}
		early := CheckObject(c)
		if len(Check(c, sources)) > 0 {
			return
		}
		if len(early) > 0 {
			t.Fatalf("only CheckObject refuses it: %v", early)
		}
		if found := walkObject(t, c, MergeFiles(sources)); len(found) > 0 {
			t.Errorf("an accepted object refers to the server:\n%s", strings.Join(found, "\n"))
		}
	})
}

// hostileTexts returns texts that refer to the server in some field.
func hostileTexts() []string {
	return []string{
		"/etc/shadow", "~", "../x", "a/b", "$HOME", "missing", "localhost", "a.localhost", "::1", "::ffff:127.0.0.1", "0x7f.1", "127.0.0.1:22",
		"http://[::1]:80/x", "https://localhost@sha256:0a", "file:///etc/shadow", "oci://localhost/x:v1", "localhost:5000/x:v1", "https://w1/x",
		"registry.example.com/../x", "key",
	}
}

// TestWalker_FindsReferences verifies the walker of FuzzCheck: it finds the references that Check
// refuses, without its table.
func TestWalker_FindsReferences(t *testing.T) {
	files := MergeFiles(fullSources)
	if found := walkObject(t, fullCluster(), files); len(found) > 0 {
		t.Fatalf("references in an object without any: %q", found)
	}
	whole := map[string][]byte{}
	for _, name := range wholeFiles() {
		whole[name] = nil
	}
	whole["id_ed25519"] = nil
	if found := walkObject(t, decodeSpec(t, wholeSpec), whole); len(found) > 0 {
		t.Fatalf("references in an accepted object: %q", found)
	}
	refused, c := 0, fullCluster()
	for _, f := range textFields(c) {
		for _, text := range hostileTexts() {
			f.with(text, func() {
				if problems := Check(c, fullSources); len(problems) > 0 {
					refused++
					if len(walkObject(t, c, files)) == 0 {
						t.Errorf("the walker finds nothing, but Check does: %q: %v", text, problems)
					}
				}
			})
		}
	}
	if refused == 0 {
		t.Error("nothing is refused")
	}
}

// A walker finds references to the server in the JSON of an object.
type walker struct {
	files map[string][]byte
	found []string
}

func (w *walker) note(path, problem string) { w.found = append(w.found, path+": "+problem) }

// walkObject returns the references to the server in an object with files.
func walkObject(t *testing.T, c *v1alpha1.Cluster, files map[string][]byte) []string {
	t.Helper()
	w := &walker{files: files}
	written := decodeObject(t, c)
	w.visitLogins(written)
	w.visitValue("", "", written)
	// An absolute path does not change, but shows as a file without its first character.
	relative := &v1alpha1.Cluster{}
	raw, err := json.Marshal(makeRelative(written))
	if err != nil || json.Unmarshal(raw, &relative.Spec) != nil {
		t.Fatalf("decoding %s: %v", raw, err)
	}
	before := decodeObject(t, relative)
	if err := spec.MakePathsAbsolute(relative, spec.Paths{Dir: "/private", Home: "/home/server"}); err != nil {
		t.Fatal(err)
	}
	w.compareValues("", before, decodeObject(t, relative))
	return w.found
}

// makeRelative returns JSON with "./" before each absolute path.
func makeRelative(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, v := range value {
			out[key] = makeRelative(v)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = makeRelative(v)
		}
		return out
	case string:
		if strings.HasPrefix(value, "/") {
			return "." + value
		}
	}
	return value
}

// decodeObject returns the JSON of a specification.
func decodeObject(t *testing.T, c *v1alpha1.Cluster) map[string]any {
	t.Helper()
	raw, err := json.Marshal(c.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// visitLogins requires credentials in the object for each host and bastion.
func (w *walker) visitLogins(object map[string]any) {
	defaults, _ := object["ssh"].(map[string]any)
	has := func(settings map[string]any) bool {
		return settings["privateKeyFile"] != nil || settings["password"] != nil || settings["passwordFrom"] != nil
	}
	logins := []map[string]any{defaults}
	hosts, _ := object["hosts"].([]any)
	for _, h := range hosts {
		h, _ := h.(map[string]any)
		own, _ := h["ssh"].(map[string]any)
		logins = append(logins, own)
		if !has(defaults) && !has(own) {
			w.note("hosts", "a host has no login")
		}
	}
	for _, settings := range logins {
		if b, ok := settings["bastion"].(map[string]any); ok && !has(b) {
			w.note("bastion", "it has no login")
		}
	}
}

// visitValue looks for references by the names of fields.
func (w *walker) visitValue(path, name string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if slices.Contains([]string{"config", "values", "extraArgs", "labels", "mirrors", "sysctls", "limits", "featureGates"}, name) {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			w.visitValue(path+"."+key, key, value[key])
		}
	case []any:
		for _, v := range value {
			w.visitValue(path+"[]", name, v)
		}
	case bool:
		if name == "agent" && value {
			w.note(path, "the agent")
		}
	case string:
		w.visitText(path, name, value)
	}
}

func (w *walker) visitText(path, name, text string) {
	if text == "" || strings.HasPrefix(path, ".controlPlaneEndpoint.kubeVIP") {
		return
	}
	switch name {
	case "env":
		w.note(path, "a variable")
	case "bundleKeys":
		if !strings.HasPrefix(text, "ed25519:") {
			w.note(path, "a file with a key")
		}
	case "bundle":
		name, scheme := strings.CutPrefix(text, "oci://")
		host, _, slash := strings.Cut(name, "/")
		if !slash || !scheme && !strings.ContainsAny(host, ".:") || strings.Contains(name, "..") || strings.Contains(name, "//") ||
			strings.ContainsAny(name, "~$\\") {
			w.note(path, "a path: "+text)
		}
		w.visitHost(path, "//"+host)
	case "manifests", "repository", "endpoint":
		if strings.Contains(text, "://") {
			w.visitHost(path, strings.SplitN(text, "@sha256:", 2)[0])
		} else if name != "manifests" {
			w.note(path, "not a URL: "+text)
		}
	case "address", "internalAddress", "domain":
		if strings.Contains(text, ":") {
			text = "[" + strings.ReplaceAll(text, "%", "%25") + "]"
		}
		w.visitHost(path, "//"+text)
	}
}

// visitHost looks for hosts that a resolver, or a program with other rules, finds on the server.
func (w *walker) visitHost(path, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme == "" && u.Path != "" {
		w.note(path, "not an address: "+address)
		return
	}
	host := strings.ToLower(u.Hostname())
	ip := net.ParseIP(host)
	if ip == nil {
		ip = parseShort(strings.TrimSuffix(host, "."))
	}
	switch {
	case ip != nil && (ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast()):
		w.note(path, "the server: "+address)
	case strings.ContainsFunc(host, func(c rune) bool { return c > '~' || c <= ' ' || strings.ContainsRune("%/\\$~", c) }):
		w.note(path, "not a host name: "+address)
	case strings.HasPrefix(host, "localhost.") || strings.HasSuffix("."+strings.TrimSuffix(host, "."), ".localhost"):
		w.note(path, "the server by name: "+address)
	}
}

// parseShort reads an IPv4 address as inet_aton(3) does: one to four decimal, octal or hexadecimal
// numbers, the last one for all remaining bytes.
func parseShort(text string) net.IP {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return nil
	}
	var all uint64
	for i, part := range parts {
		base, digits := 10, part
		if rest, ok := strings.CutPrefix(part, "0x"); ok {
			base, digits = 16, rest
		} else if strings.HasPrefix(part, "0") {
			base = 8
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil {
			return nil
		}
		if i == len(parts)-1 {
			all |= n
		} else {
			all |= n << (24 - 8*i)
		}
	}
	return net.IPv4(byte(all>>24), byte(all>>16), byte(all>>8), byte(all))
}

// compareValues requires that each text that the command line resolves is a file of the object.
func (w *walker) compareValues(path string, written, resolved any) {
	switch written := written.(type) {
	case map[string]any:
		for key, value := range written {
			w.compareValues(path+"."+key, value, resolved.(map[string]any)[key])
		}
	case []any:
		for i, value := range written {
			w.compareValues(path+"[]", value, resolved.([]any)[i])
		}
	case string:
		if _, ok := w.files[written]; written != resolved && (!ok || resolved != "/private/"+written) {
			w.note(path, "a file of the server: "+resolved.(string))
		}
	}
}
