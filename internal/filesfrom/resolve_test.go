package filesfrom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/apicheck"
)

// fakeReader has objects by "Secret name" or "ConfigMap name", in the namespace "team". It
// counts the reads. The reads in failed have errors.
type fakeReader struct {
	objects map[string]map[string][]byte
	reads   map[string]int
	failed  map[string]error
}

func newReader(objects map[string]map[string][]byte) *fakeReader {
	return &fakeReader{objects: objects, reads: map[string]int{}, failed: map[string]error{}}
}

func (r *fakeReader) ReadSecret(ctx context.Context, namespace, name string) (Object, error) {
	return r.readObject(ctx, Secret, namespace, name)
}

func (r *fakeReader) ReadConfigMap(ctx context.Context, namespace, name string) (Object, error) {
	return r.readObject(ctx, ConfigMap, namespace, name)
}

func (r *fakeReader) readObject(ctx context.Context, kind Kind, namespace, name string) (Object, error) {
	key := string(kind) + " " + name
	r.reads[key]++
	if err := errors.Join(ctx.Err(), r.failed[key]); err != nil {
		return Object{}, err
	}
	if namespace != "team" {
		return Object{}, fmt.Errorf("unexpected namespace %q", namespace)
	}
	data, ok := r.objects[key]
	if !ok {
		return Object{}, fmt.Errorf("get: %w", &NotFoundError{Kind: kind, Namespace: namespace, Name: name})
	}
	return Object{Data: data, ResourceVersion: "7"}, nil
}

// decodeSpec returns an object in the namespace "team" with a login and one host, changed by a
// merge of text.
func decodeSpec(t testing.TB, text string) *v1alpha1.Cluster {
	t.Helper()
	fields := map[string]any{
		"filesFrom": []any{map[string]any{"secretRef": map[string]any{"name": "ssh"}}},
		"ssh":       map[string]any{"privateKeyFile": "id_ed25519"},
		"hosts":     []any{map[string]any{"name": "cp1", "address": "10.0.0.11", "roles": []any{"control-plane"}}},
	}
	var more map[string]any
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, more)
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": spec.Kind, "metadata": map[string]any{"name": "prod", "namespace": "team"}, "spec": fields,
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

// texts returns content by name.
func texts(pairs ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

// reveal returns the content of files, for a comparison.
func reveal(f Files) map[string]string {
	out := map[string]string{}
	for name, content := range f {
		out[name] = content.Reveal()
	}
	return out
}

func TestResolve_ReturnsFilesOfAllSources(t *testing.T) {
	r := newReader(map[string]map[string][]byte{
		"Secret ssh":      texts("id_ed25519", "key", "sudo", "hunter2", "empty", ""),
		"ConfigMap files": texts("a.conf", "1", "sudo", "later"),
		"Secret files":    texts("a.conf", "2"),
	})
	for _, tc := range []struct {
		name, reason, sources string
		want                  map[string]string
		read                  []Source
	}{
		{
			"one", "all keys are files, also unused and empty ones", "[{secretRef: {name: ssh}}]",
			map[string]string{"id_ed25519": "key", "sudo": "hunter2", "empty": ""},
			[]Source{{Secret, "ssh", "7"}},
		},
		{
			"later source", "later sources override earlier ones", "[{secretRef: {name: ssh}}, {configMapRef: {name: files}}]",
			map[string]string{"id_ed25519": "key", "sudo": "later", "empty": "", "a.conf": "1"},
			[]Source{{Secret, "ssh", "7"}, {ConfigMap, "files", "7"}},
		},
		{
			"other order", "the order decides", "[{configMapRef: {name: files}}, {secretRef: {name: ssh}}]",
			map[string]string{"id_ed25519": "key", "sudo": "hunter2", "empty": "", "a.conf": "1"},
			[]Source{{ConfigMap, "files", "7"}, {Secret, "ssh", "7"}},
		},
		{
			"same name", "a Secret and a ConfigMap are two objects",
			"[{secretRef: {name: ssh}}, {configMapRef: {name: files}}, {secretRef: {name: files}}]",
			map[string]string{"id_ed25519": "key", "sudo": "later", "empty": "", "a.conf": "2"},
			[]Source{{Secret, "ssh", "7"}, {ConfigMap, "files", "7"}, {Secret, "files", "7"}},
		},
		{
			"repeated", "its last place decides, and it is read once",
			"[{secretRef: {name: ssh}}, {configMapRef: {name: files}}, {secretRef: {name: ssh}}]",
			map[string]string{"id_ed25519": "key", "sudo": "hunter2", "empty": "", "a.conf": "1"},
			[]Source{{Secret, "ssh", "7"}, {ConfigMap, "files", "7"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clear(r.reads)
			got, err := Resolve(t.Context(), r, decodeSpec(t, "filesFrom: "+tc.sources))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, reveal(got.Files)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if d := cmp.Diff(tc.read, got.Sources); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			for key, n := range r.reads {
				if n != 1 {
					t.Errorf("%s was read %d times", key, n)
				}
			}
		})
	}
}

func TestResolve_AcceptsObjectWithoutSources(t *testing.T) {
	c := decodeSpec(t, "{filesFrom: [], ssh: {password: hunter2}}")
	c.Namespace = ""
	got, err := Resolve(t.Context(), newReader(nil), c)
	if err != nil || len(got.Files) > 0 || len(got.Sources) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestResolve_ReportsAllProblems(t *testing.T) {
	key := texts("id_ed25519", "key")
	large := maps.Clone(key)
	large["large"] = make([]byte, apicheck.MaxFileBytes+1)
	many := maps.Clone(key)
	for i := range apicheck.MaxFiles {
		many[fmt.Sprint("f", i)] = nil
	}
	r := newReader(map[string]map[string][]byte{
		"Secret ssh": key, "Secret empty": nil, "Secret large": large, "Secret many": many,
		"ConfigMap keys":    texts("id_ed25519", "key", "../a", "", "a/b", "", "", "", "..", ""),
		"ConfigMap maximum": {"id_ed25519": make([]byte, apicheck.MaxFileBytes)},
		"ConfigMap other":   texts("other", ""),
	})
	const missing = " object-source-missing"
	repeat := func(n int, source string) string { return "filesFrom: [" + strings.Repeat(source+", ", n) + "]" }
	for _, tc := range []struct {
		name, reason, spec string
		want               []string
	}{
		{"missing Secret", "its files are unknown", "filesFrom: [{secretRef: {name: b}}]", []string{"spec.filesFrom[0]" + missing}},
		{"missing ConfigMap", "it is not a Secret", "filesFrom: [{configMapRef: {name: ssh}}]", []string{"spec.filesFrom[0]" + missing}},
		{
			"several missing", "all are reported at once",
			"filesFrom: [{secretRef: {name: b}}, {secretRef: {name: ssh}}, {configMapRef: {name: c}}, {secretRef: {name: b}}]",
			[]string{"spec.filesFrom[0]" + missing, "spec.filesFrom[2]" + missing, "spec.filesFrom[3]" + missing},
		},
		{
			"missing source and forbidden field", "both are reported at once", "{filesFrom: [{secretRef: {name: b}}], ssh: {agent: true}}",
			[]string{"spec.filesFrom[0]" + missing, "spec.ssh.agent object-ssh-agent"},
		},
		{"no name", "the API server does not accept it", "filesFrom: [{}]", []string{"spec.filesFrom[0]" + missing}},
		{
			"two names", "the API server does not accept it", "filesFrom: [{secretRef: {name: ssh}, configMapRef: {name: keys}}]",
			[]string{"spec.filesFrom[0]" + missing},
		},
		{
			"path as a name", "it would be another request", "filesFrom: [{secretRef: {name: ../ssh}}]",
			[]string{"spec.filesFrom[0]" + missing},
		},
		{"missing key", "no source has the file", "ssh: {privateKeyFile: other}", []string{"spec.ssh.privateKeyFile object-file-missing"}},
		{"without data", "the object exists", "filesFrom: [{secretRef: {name: empty}}]", []string{"spec.ssh.privateKeyFile object-file-missing"}},
		{
			"several missing keys", "all are reported at once",
			"{ssh: {privateKeyFile: a}, hooks: [{name: h, phase: preInstall, script: b, materials: [id_ed25519, c]}]}",
			[]string{
				"spec.ssh.privateKeyFile object-file-missing", "spec.hooks[0].script object-file-missing",
				"spec.hooks[0].materials[1] object-file-missing",
			},
		},
		{"path", "it is a file of the server", "ssh: {privateKeyFile: /root/.ssh/id}", []string{"spec.ssh.privateKeyFile object-absolute-path"}},
		{
			"invalid keys", "they are not names of files", "filesFrom: [{configMapRef: {name: keys}}]",
			[]string{
				"spec.filesFrom[0] object-file-key", "spec.filesFrom[0] object-file-key", "spec.filesFrom[0] object-file-key",
				"spec.filesFrom[0] object-file-key",
			},
		},
		{"largest file", "it is within the limit", "filesFrom: [{configMapRef: {name: maximum}}]", nil},
		{"large file", "it is above the limit", "filesFrom: [{secretRef: {name: large}}]", []string{"spec.filesFrom[0] object-files-too-large"}},
		{"largest total", "it is within the limit", repeat(4, "{configMapRef: {name: maximum}}"), nil},
		{
			"large total", "overridden files count, too", repeat(5, "{configMapRef: {name: maximum}}"),
			[]string{"spec.filesFrom object-files-too-large"},
		},
		{"many files", "one is above the limit", "filesFrom: [{secretRef: {name: many}}]", []string{"spec.filesFrom object-files-too-large"}},
		{"most sources", "they are within the limit", repeat(spec.MaxFilesFrom, "{secretRef: {name: ssh}}"), nil},
		{
			"many sources", "none of them is read", repeat(spec.MaxFilesFrom+1, "{secretRef: {name: ssh}}"),
			[]string{"spec.filesFrom object-files-too-large"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Resolve(t.Context(), r, decodeSpec(t, tc.spec))
			var found diag.List
			if !errors.As(err, &found) && err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range found {
				got = append(got, d.Path+" "+d.ID)
				if d.Message == "" || d.Hint == "" || d.Severity != diag.Error {
					t.Errorf("an unfinished diagnostic: %+v", d)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, d, found)
			}
		})
	}
	if r.reads["Secret ../ssh"] > 0 {
		t.Error("a path was read")
	}
}

func TestResolve_ReturnsErrorsOfReader(t *testing.T) {
	forbidden, unavailable := errors.New("forbidden"), errors.New("unavailable")
	c := decodeSpec(t, "filesFrom: [{secretRef: {name: a}}, {configMapRef: {name: b}}, {secretRef: {name: missing}}]")
	r := newReader(nil)
	r.failed = map[string]error{"Secret a": forbidden, "ConfigMap b": unavailable}
	_, err := Resolve(t.Context(), r, c)
	if !errors.Is(err, forbidden) || !errors.Is(err, unavailable) || errors.As(err, new(diag.List)) {
		t.Errorf("errors of the reader: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r = newReader(nil)
	if _, err := Resolve(ctx, r, c); !errors.Is(err, context.Canceled) || len(r.reads) != 1 {
		t.Errorf("a cancelled call: %v, after %d reads", err, len(r.reads))
	}

	c.Namespace = ""
	r = newReader(nil)
	if _, err := Resolve(t.Context(), r, c); err == nil || errors.As(err, new(diag.List)) || len(r.reads) > 0 {
		t.Errorf("without a namespace: %v, after %d reads", err, len(r.reads))
	}
}

// TestResolve_IsIndependentOfReader checks that a later change of the data of the reader, such
// as a cache, does not change the files.
func TestResolve_IsIndependentOfReader(t *testing.T) {
	data := texts("id_ed25519", "key")
	got, err := Resolve(t.Context(), newReader(map[string]map[string][]byte{"Secret ssh": data}), decodeSpec(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	data["id_ed25519"][0] = 'X'
	data["more"] = nil
	if d := cmp.Diff(map[string]string{"id_ed25519": "key"}, reveal(got.Files)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestResolved_PrintsNoContent(t *testing.T) {
	r := &Resolved{Files: Files{"sudo": secret.New("hunter2")}, Sources: []Source{{Secret, "ssh", "7"}}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, text := range []string{fmt.Sprintf(format, r), fmt.Sprintf(format, r.Files), fmt.Sprintf(format, *r)} {
			if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
				t.Errorf("%s prints %s", format, text)
			}
		}
	}
	raw, err := yaml.Marshal(r)
	if err != nil || strings.Contains(string(raw), "hunter2") {
		t.Errorf("%s, %v", raw, err)
	}
}
